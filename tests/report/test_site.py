"""`perc serve`: what has a page, what has not, and what Prometheus is told."""

import json
import os
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
from perc.report.page.listing import list_runs
from perc.report.page.site import site
from tests.report.browser import CHROMIUM, opened


def write(folder, about, name="run.json", **tables):
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(about))
    for table, frame in tables.items():
        frame.write_parquet(folder / f"{table}.parquet")


def results(**more):
    return pl.DataFrame(
        {
            "policy": ["lru", "belady"],
            "capacity_blocks": [10, 10],
            "block_hit_ratio": [0.25, 0.5],
            "token_hit_ratio": [0.2, 0.4],
            "recompute_tokens": [8, 4],
            "recompute_s": [2.0, 1.0],
            "gap_closed": [0.0, 1.0],
            **more,
        }
    )


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    about = {
        "command": ["perc", "compare", "x"],
        "verdict": ["LRU does."],
        "trace": {"source": "x"},
    }
    write(root / "a", about, results=results(), curves=results())
    (tmp_path / "secret").mkdir()
    shutil.copytree(root / "a", tmp_path / "secret" / "b")
    os.symlink(tmp_path / "secret", root / "link")
    return root


@pytest.fixture
def client(root):
    return TestClient(site(root))


def begin_sweep(root, done):
    write(root / "deep" / "sw", {"configurations": 8}, name="sweep.json")
    parts = root / "deep" / "sw" / "parts"
    parts.mkdir()
    pl.DataFrame({"config": list(map(str, range(done)))}).write_parquet(
        parts / "1.parquet"
    )
    (parts / ".half.parquet").write_text("torn")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_in_a_browser_the_bar_moves_with_the_sweep(root, tmp_path):
    begin_sweep(root, 3)
    shown = site(root)

    async def growing(scope, receive, send):
        """Three more configurations are done once the page is there."""
        await shown(scope, receive, send)
        if scope["path"].startswith("/run/"):
            more = pl.DataFrame({"config": ["3", "4", "5"]})
            more.write_parquet(root / "deep" / "sw" / "parts" / "2.parquet")

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
        lru_block_hit_ratio=0.25,
        bound_block_hit_ratio=0.5,
    ).write_parquet(root / "deep" / "sw" / "results.parquet")
    assert client.get("/progress/deep/sw").json()["finished"]
    assert "Best configurations" in client.get("/run/deep/sw").text


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
