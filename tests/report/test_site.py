"""`perc serve`: what has a page, what has not, and what Prometheus is told."""

import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import polars as pl
import pytest
import uvicorn
from starlette.testclient import TestClient

from perc.report.page.exported import EXPORTED, exposition
from perc.report.page.folders import read_run
from perc.report.page.listing import list_runs
from perc.report.page.render import page
from perc.report.page.site import site
from tests.report.browser import CHROMIUM, opened
from tests.report.site_folders import begin_sweep, part, results, root_of_runs, write


@pytest.fixture
def root(tmp_path):
    return root_of_runs(tmp_path)


@pytest.fixture
def client(root):
    return TestClient(site(root))


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_in_a_browser_the_bar_moves_with_the_sweep(root, tmp_path):
    begin_sweep(root, 3)
    shown = site(root)

    async def growing(scope, receive, send):
        """Three more configurations are done once the page is there."""
        await shown(scope, receive, send)
        if scope["path"].startswith("/run/"):
            more = root / "deep" / "sw" / "parts" / "2.parquet"
            part(3, first=3).write_parquet(more)

    config = uvicorn.Config(growing, port=0, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}/run/deep/sw"
        dom = opened(address, tmp_path, "--virtual-time-budget=5000")
    finally:
        server.should_exit = True
        thread.join(timeout=30)
    assert ">6 of 8 configurations<" in dom


def test_every_run_is_listed_and_has_a_page(client, root):
    begin_sweep(root, 3)
    text = client.get("/").text
    assert re.findall(r'href="/run/(.*?)"', text) == ["deep/sw", "a"]
    assert "3 of 8 configurations" in text
    answer = client.get("/run/a")
    assert answer.status_code == 200 and "LRU does." in answer.text


def test_a_running_sweep_shows_how_far_it_has_come(client, root):
    begin_sweep(root, 3)
    page = client.get("/run/deep/sw").text
    assert 'max="8" value="3"' in page and "3 of 8 configurations" in page
    assert client.get("/progress/deep/sw").json() == {
        "done": 3,
        "total": 8,
        "finished": False,
    }
    results(
        trace="x",
        trace_sha256="0",
        lru_block_hit_ratio=0.25,
        bound_block_hit_ratio=0.5,
    ).write_parquet(root / "deep" / "sw" / "results.parquet")
    assert client.get("/progress/deep/sw").json()["finished"]
    assert "Best configurations" in client.get("/run/deep/sw").text


@pytest.mark.parametrize(("done", "says"), [(8, 8), (9, 8), (0, 0)])
def test_a_sweep_is_never_more_than_done(client, root, done, says):
    begin_sweep(root, done)
    found = client.get("/progress/deep/sw").json()
    assert (found["done"], found["total"]) == (says, 8)
    assert (
        f'perc_sweep_done_ratio{{run="deep/sw"}} {says / 8}'
        in exposition(root)[0].decode()
    )
    part(1).write_parquet(root / "deep" / "sw" / "results.parquet")
    found = client.get("/progress/deep/sw").json()
    assert (found["done"], found["total"]) == (8, 8)


def test_the_folder_itself_and_a_run_of_its_name_have_pages(client, root):
    for path in list((root / "a").iterdir()):
        shutil.copy(path, root)
    shutil.copytree(root / "a", root / "runs")
    assert set(list_runs(root)) == {"runs/", "runs", "a"}
    assert f"Folder {root}." in client.get("/run/runs/").text
    assert f"Folder {root / 'runs'}." in client.get("/run/runs").text


def test_every_page_leads_back_to_the_list(client, root):
    begin_sweep(root, 3)
    (root / "bad").mkdir()
    (root / "bad" / "run.json").write_text("{")
    for name in ("a", "deep/sw", "bad", "none"):
        assert '<a href="/">All runs</a>' in client.get(f"/run/{name}").text
    assert "All runs" not in page([read_run(root / "a")])


def test_runs_with_rules_have_metrics_of_their_own(root):
    about = {"command": ["perc", "compare", "x"], "verdict": [], "rules": ""}
    without = {"without_block_hit_ratio": [0.125, 0.5], "without_recompute_s": [4.0, 2]}
    classes = pl.DataFrame(
        schema={
            **dict.fromkeys(("by", "name", "policy"), pl.String),
            "capacity_blocks": pl.Int64,
            **dict.fromkeys(("without", "with_rules"), pl.Float64),
        }
    )
    write(root / "r", about, results=results(**without), classes=classes)
    lines = [
        line for line in exposition(root)[0].decode().splitlines() if 'run="r"' in line
    ]
    labels = '{capacity_blocks="10",policy="lru",run="r"}'
    assert f"perc_ruled_block_hit_ratio{labels} 0.25" in lines
    assert f"perc_ruled_without_block_hit_ratio{labels} 0.125" in lines
    assert f"perc_ruled_without_recompute_seconds{labels} 4.0" in lines
    assert all(line.startswith("perc_ruled_") for line in lines)


@pytest.mark.parametrize(
    "name",
    [
        "link/b",
        "../secret/b",
        "..%2fsecret%2fb",
        "%2fetc",
        "a/results.parquet",
        "",
        "b",
    ],
)
def test_nothing_outside_the_folder_is_reachable(client, name):
    for way in ("run", "progress"):
        answer = client.get(f"/{way}/{name}")
        assert answer.status_code == 404, answer.text
        assert "LRU does." not in answer.text


def test_all_runs_are_one_json_too(client, root):
    begin_sweep(root, 3)
    shutil.copytree(root / "a", root / "bad")
    (root / "bad" / "results.parquet").write_text("torn")
    found = {run["run"]: run for run in client.get("/runs.json").json()}
    assert found["a"]["rows"] == results().to_dicts()
    assert not found["deep/sw"]["finished"] and found["deep/sw"]["done"] == 3
    assert "results.parquet" in found["bad"]["error"]


def test_a_page_of_another_site_cannot_ask(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_a_damaged_run_is_named_and_the_others_stay(client, root):
    shutil.copytree(root / "a", root / "bad")
    (root / "bad" / "results.parquet").write_text("torn")
    assert "results.parquet" in client.get("/run/bad").text
    assert client.get("/run/bad").status_code == 409
    assert client.get("/run/a").status_code == 200
    assert 'run="a"' in client.get("/metrics").text


def test_names_are_never_markup(client, root):
    shutil.copytree(root / "a", root / "<b>x")
    text = client.get("/").text
    assert "<b>x" not in text and "&lt;b&gt;x" in text
    assert client.get("/run/%3Cb%3Ex").status_code == 200
    missing = client.get("/run/<i>").text
    assert "<i>" not in missing


def test_an_empty_folder_says_how_to_begin(tmp_path):
    assert "No runs yet" in TestClient(site(tmp_path)).get("/").text


def test_links_and_deep_folders_are_not_listed(root):
    shutil.copytree(root / "a", root / "1/2/3/4")
    assert list(list_runs(root)) == ["a"]


def test_prometheus_is_told_what_the_parquet_says(root):
    begin_sweep(root, 2)
    lines = exposition(root)[0].decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    labels = 'capacity_blocks="10",policy="belady",run="a"'
    assert values[f"perc_block_hit_ratio{{{labels}}}"] == "0.5"
    assert values[f"perc_recompute_seconds{{{labels}}}"] == "1.0"
    assert values['perc_sweep_done_ratio{run="deep/sw"}'] == "0.25"
    names = [name for columns in EXPORTED.values() for _, name, _ in columns]
    assert len(set(names)) == len(names)


def test_the_command_answers_on_loopback_only(root):
    process = subprocess.Popen(
        [Path(sys.executable).with_name("perc"), "serve", root, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = re.match(r"(http://127\.0\.0\.1:\d+/) shows", process.stderr.readline())
        assert said is not None
        retrying = httpx.HTTPTransport(retries=5)  # it listens, and answers soon
        with httpx.Client(transport=retrying, timeout=60) as client:
            answer = client.get(said[1])
        assert answer.status_code == 200 and "/run/a" in answer.text
    finally:
        process.terminate()
        process.communicate(timeout=30)
