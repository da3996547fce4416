"""`perc serve` of links, damaged folders and odd names: the other runs stay."""

import os
import re
import shutil
from urllib.parse import quote

import polars as pl
import pytest
from starlette.testclient import TestClient

from perc.report.page.exported import exposition
from perc.report.page.folders import read_run
from perc.report.page.site import site
from tests.report.site_folders import begin_sweep, results, root_of_runs


@pytest.fixture
def root(tmp_path):
    return root_of_runs(tmp_path)


@pytest.fixture
def client(root):
    return TestClient(site(root))


def exposed(root):
    return exposition(root)[0].decode()


def linked(path, target):
    """Replaces a file or folder by a link to the same elsewhere."""
    shutil.move(path, target)
    path.symlink_to(target)


@pytest.mark.parametrize("name", ["run.json", "results.parquet", "curves.parquet"])
def test_a_link_inside_a_run_is_not_followed(client, root, tmp_path, name):
    shutil.copytree(root / "a", root / "bad")
    linked(root / "bad" / name, tmp_path / "secret" / name)
    assert read_run(root / "bad").command == "compare"  # perc report may
    answer = client.get("/run/bad")
    assert answer.status_code == 409 and "is a link" in answer.text
    assert 'run="bad"' not in exposed(root) and 'run="a"' in exposed(root)
    found = {run["run"]: run for run in client.get("/runs.json").json()}
    assert "is a link" in found["bad"]["error"] and "rows" not in found["bad"]


def test_parts_of_a_sweep_elsewhere_are_not_counted(client, root, tmp_path):
    begin_sweep(root, 3)
    sweep = root / "deep" / "sw"
    linked(sweep / "parts" / "1.parquet", tmp_path / "1.parquet")
    assert client.get("/progress/deep/sw").json()["done"] == 0
    (sweep / "parts" / "1.parquet").unlink()
    shutil.move(tmp_path / "1.parquet", sweep / "parts" / "1.parquet")
    assert client.get("/progress/deep/sw").json()["done"] == 3
    linked(sweep / "parts", tmp_path / "parts")
    assert client.get("/progress/deep/sw").json()["done"] == 0


def spoilt_text(text):
    return lambda folder: (folder / "run.json").write_text(text)


def spoilt_table(**columns):
    table = results().with_columns(**columns)
    return lambda folder: table.write_parquet(folder / "results.parquet")


DAMAGES = {
    "deep JSON": spoilt_text("[" * 100_000),
    "half a surrogate": spoilt_text('{"command": ["perc", "compare", "\\ud800"]}'),
    "no words": spoilt_text('{"command": 5}'),
    "no verdict": spoilt_text('{"command": ["perc", "compare"]}'),
    "no policy": lambda folder: (
        results().drop("policy").write_parquet(folder / "results.parquet")
    ),
    "nested": spoilt_table(more=pl.Series([[1], [2]])),
    "a missing table": lambda folder: (folder / "curves.parquet").unlink(),
    "a folder": lambda folder: (
        (folder / "results.parquet").unlink(),
        (folder / "results.parquet").mkdir(),
    ),
    "a pipe": lambda folder: (
        (folder / "run.json").unlink(),
        os.mkfifo(folder / "run.json"),
    ),
}


@pytest.mark.parametrize("spoil", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_takes_nothing_else_down(client, root, spoil):
    shutil.copytree(root / "a", root / "bad")
    spoil(root / "bad")
    check_one_is_damaged(client, root, "bad")


@pytest.mark.parametrize(
    ("name", "listed"), [(b"bad\xff", "bad\\udcff"), (b"bad\n", "bad\\n")]
)
def test_a_folder_that_no_page_can_name_is_listed_as_damaged(
    client, root, name, listed
):
    shutil.copytree(root / "a", root / os.fsdecode(name))
    check_one_is_damaged(client, root, listed)
    assert "rename the folder" in client.get("/").text


def check_one_is_damaged(client, root, name):
    lines = client.get("/").text.split("<tr>")
    (line,) = [line for line in lines if f'data-value="{name}"' in line]
    assert 'data-value="damaged"' in line and "<small>" in line
    assert sum('data-value="done"' in line for line in lines) == 1
    assert client.get(f"/run/{quote(name)}").status_code == 409
    assert client.get("/run/a").status_code == 200
    assert set(re.findall('run="(.*?)"', exposed(root))) == {"a"}
    found = {run["run"]: run for run in client.get("/runs.json").json()}
    assert found[name]["error"] and not found[name]["finished"]
    assert found["a"]["rows"] == results().to_dicts()


def test_the_list_sees_that_a_run_was_mended(client, root):
    whole = (root / "a" / "results.parquet").read_bytes()
    (root / "a" / "results.parquet").write_text("torn")
    assert 'data-value="damaged"' in client.get("/").text
    (root / "a" / "results.parquet").write_bytes(whole)
    assert 'data-value="damaged"' not in client.get("/").text


def test_what_is_no_number_is_null_in_json(client, root):
    spoilt_table(gap_closed=pl.Series([float("nan"), float("inf")]))(root / "a")
    (found,) = client.get("/runs.json").json()
    assert [row["gap_closed"] for row in found["rows"]] == [None, None]
    assert client.get("/run/a").status_code == 200
