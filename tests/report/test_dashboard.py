"""The Grafana dashboard names metrics that exist, and Prometheus can ask for them."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import polars as pl
import pytest

from perc.bridges import vllm_metrics
from perc.report.page.exported import EXPORTED, LABELS, PROGRESS

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "perc.json"
PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(
    not DASHBOARD.exists(), reason="run away from a checkout"
)


def panels():
    return [
        p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"
    ]


def expressions():
    return [t["expr"] for panel in panels() for t in panel["targets"]]


def exported():
    """Every name that the bridge and `perc serve` have, as Prometheus stores it."""
    bridge = {f"perc_{name}_total" for name in vllm_metrics.COUNTS}
    for family in vllm_metrics.Exporter().collect():
        end = {"counter": "_total", "info": "_info"}.get(family.type, "")
        bridge.add(family.name + end)
    runs = {name for columns in EXPORTED.values() for _, name, _ in columns}
    return bridge, runs | {PROGRESS[0]}


def test_every_panel_asks_for_metrics_that_exist():
    known = set.union(*exported())
    for expression in expressions():
        names = set(re.findall(r"\bperc_\w+", expression))
        assert names and names <= known, expression


def test_every_metric_has_a_panel():
    shown = set(re.findall(r"\bperc_\w+", " ".join(expressions())))
    bridge, runs = exported()
    assert (bridge | runs) - shown == set()


def test_panels_do_not_overlap_and_have_titles():
    places = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        assert panel["title"]
        p = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(p["x"], p["x"] + p["w"])
            for y in range(p["y"], p["y"] + p["h"])
        }
        assert not cells & places and p["x"] + p["w"] <= 24
        places |= cells


def test_every_panel_follows_the_variables_that_its_metrics_have():
    bridge, _ = exported()
    labels = dict.fromkeys(bridge, ("policy",)) | {PROGRESS[0]: ("run",)}
    for command, columns in EXPORTED.items():
        labels |= {name: LABELS[command][:2] for _, name, _ in columns}
    for expression in expressions():
        for name, chosen in re.findall(r"\b(perc_\w+)(?:{(.*?)})?", expression):
            wanted = [f'{label}=~"${label}"' for label in labels[name]]
            assert chosen.split(", ") == wanted, expression


def variables():
    listed = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return {one["name"]: one for one in listed if one["type"] == "query"}


def test_the_variables_offer_all_runs_and_policies():
    assert set(variables()) == {"run", "policy"}
    for name, variable in variables().items():
        assert variable["multi"] and variable["includeAll"]
        assert variable["allValue"] == ".*"
        assert variable["query"]["query"] == variable["definition"]
        assert re.fullmatch(rf"label_values\({{.*}}, {name}\)", variable["definition"])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answer(address, wanted, *, seconds=60):
    """What an address answers once it is as `wanted` says."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = httpx.get(address)
            if found.status_code == 200 and wanted(found.json()):
                return found.json()
        except (httpx.TransportError, ValueError):
            pass
        time.sleep(0.3)
    raise AssertionError(f"{address} does not answer as it should")


@pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus")
def test_a_real_prometheus_scrapes_and_answers_every_panel(tmp_path):
    runs = tmp_path / "runs"
    compare = runs / "a"
    compare.mkdir(parents=True)
    about = {"command": ["perc", "compare"], "verdict": [], "trace": {"source": "x"}}
    (compare / "run.json").write_text(json.dumps(about))
    row = {"policy": ["lru"], "capacity_blocks": [10], "block_hit_ratio": [0.25]}
    row |= {"token_hit_ratio": [0.25], "recompute_s": [1.0]}
    for name in ("results", "curves"):
        pl.DataFrame(row).write_parquet(compare / f"{name}.parquet")
    port, own = free_port(), free_port()
    settings = tmp_path / "prometheus.yml"
    settings.write_text(
        "scrape_configs:\n- job_name: perc\n  scrape_interval: 1s\n"
        f"  static_configs:\n  - targets: ['127.0.0.1:{port}']\n"
    )
    started = []
    for command in (
        [Path(sys.executable).with_name("perc"), "serve", runs, "--port", str(port)],
        [
            *(PROMETHEUS, f"--config.file={settings}"),
            *(f"--storage.tsdb.path={tmp_path / 'data'}",),
            f"--web.listen-address=127.0.0.1:{own}",
        ],
    ):
        log = (tmp_path / f"{len(started)}.log").open("w")
        started.append(subprocess.Popen(command, stdout=log, stderr=log))
        log.close()
    try:
        base = f"http://127.0.0.1:{own}/api/v1/query?query="
        found = answer(
            f"{base}perc_block_hit_ratio", lambda said: bool(said["data"]["result"])
        )
        (sample,) = found["data"]["result"]
        assert sample["value"][1] == "0.25" and sample["metric"]["run"] == "a"
        for expression in expressions():
            asked = expression.replace("$__rate_interval", "1m")
            asked = re.sub(r"\$(run|policy)", ".*", asked)
            said = httpx.get(base.removesuffix("?query="), params={"query": asked})
            assert said.json()["status"] == "success", (expression, said.text)
        for name, value in (("run", "a"), ("policy", "lru")):
            selector = variables()[name]["definition"][len("label_values(") :]
            said = httpx.get(
                f"http://127.0.0.1:{own}/api/v1/label/{name}/values",
                params={"match[]": selector.rsplit(", ", 1)[0]},
            )
            assert said.json()["data"] == [value], said.text
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=30)
