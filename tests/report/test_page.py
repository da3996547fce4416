"""The page of `perc report`: what it shows, and that all of it is in the files."""

import json
import re
import shutil
from html.parser import HTMLParser

import polars as pl
import pytest

import perc
from perc.compare import resolve
from perc.report.page.folders import read_run
from perc.report.page.render import page, write_report
from perc.report.run_folder import write_run
from tests.report.browser import CHROMIUM, opened


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    trace = perc.make("chat", requests=400)
    policies = resolve(["lru", "lfu", "belady"])
    result = perc.compare(trace, policies, [200, 1000])
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, result, trace, policies, command=["perc", "compare"], warmup=0.0)
    return folder


class Reader(HTMLParser):
    """The cells of a page, and whatever it would load."""

    def __init__(self, text):
        super().__init__()
        self.values, self.loads, self.scripts = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "data-value" in given:
            self.values.append(given["data-value"])
        self.loads += [v for k, v in attrs if k in ("src", "href") and tag != "a"]
        self.scripts += tag == "script"


def numbers(folder):
    found = set()
    for path in folder.glob("*.parquet"):
        for column in pl.read_parquet(path).iter_columns():
            cells = map(str, column.drop_nulls().to_list())  # "2" is a group's name
            found |= {float(v) for v in cells if is_number(v)}
    return found


def is_number(text):
    return re.fullmatch(r"-?[\d.]+(e-?\d+)?", text) is not None


def test_every_number_of_the_tables_is_in_the_parquet(run_folder):
    shown = [v for v in Reader(page([read_run(run_folder)])).values if is_number(v)]
    assert len(shown) > 50
    known = numbers(run_folder)
    assert [v for v in shown if float(v) not in known] == []


def test_it_loads_nothing(run_folder):
    found = Reader(page([read_run(run_folder)]))
    assert found.loads == ["data:,"] and found.scripts == 1


def test_it_says_what_was_found_and_how_to_repeat_it(run_folder):
    text = page([read_run(run_folder)])
    about = json.loads((run_folder / "run.json").read_text())
    for sentence in about["verdict"]:
        assert sentence.replace("'", "&#39;") in text
    assert "<pre>perc compare</pre>" in text
    assert about["trace_sha256"] in text
    assert text.count("<svg") == 1 and "currentColor" in text


def test_what_stands_in_a_run_is_never_markup(run_folder, tmp_path):
    folder = tmp_path / "evil"
    shutil.copytree(run_folder, folder)
    about = json.loads((folder / "run.json").read_text())
    evil = "<script>alert(1)</script>"
    about["trace"]["source"] = about["verdict"][0] = about["command"][1] = evil
    about["command"] = ["perc", "compare", evil]
    about["definitions"][evil] = evil
    (folder / "run.json").write_text(json.dumps(about))
    for name in ("results", "curves", "groups"):
        table = pl.read_parquet(folder / f"{name}.parquet")
        table.with_columns(policy=pl.lit(evil)).write_parquet(
            folder / f"{name}.parquet"
        )
    text = page([read_run(folder)])
    assert evil not in text and "&lt;script&gt;" in text
    assert Reader(text).scripts == 1


def describe_served(folder):
    """run.json of a run of perc simulate."""
    machine = {"model": "m", "tp": 1, "gpu": "g"}
    about = {"command": ["perc", "simulate"], "machine": machine, "trace": "t"}
    about["server"] = {"capacity_blocks": 9}
    (folder / "run.json").write_text(json.dumps(about))


def test_loads_side_by_side_have_their_charts(tmp_path):
    rows = [
        {"load": load, "policy": policy, "ttft_s_p50": load / 8, "goodput_per_s": 2.0}
        | {"recompute_s": 0.0}
        for load in (1.0, 4.0)
        for policy in ("lru", "perc_decay")
    ]
    describe_served(tmp_path)
    for loads, charts in ((rows, 2), (rows[:2], 0)):
        pl.DataFrame(loads).write_parquet(tmp_path / "results.parquet")
        text = page([read_run(tmp_path)])
        assert text.count("<svg") == charts
        assert ("Median TTFT by load" in text) is ("Goodput by load" in text)


def test_a_load_at_which_nothing_was_completed_is_said(tmp_path):
    rows = [
        {"load": 1.0, "policy": policy, "ttft_s_p50": ttft, "goodput_per_s": 0.0}
        | {"recompute_s": 0.0}
        for policy, ttft in (("lru", None), ("perc", 2.0))
    ]
    describe_served(tmp_path)
    pl.DataFrame(rows).write_parquet(tmp_path / "results.parquet")
    assert "the lowest median TTFT is 2 s with perc." in page([read_run(tmp_path)])
    pl.DataFrame(rows[:1], schema_overrides={"ttft_s_p50": pl.Float64}).write_parquet(
        tmp_path / "results.parquet"
    )
    text = page([read_run(tmp_path)])
    assert "Load 1: no request was completed." in text
    assert "<dt>TTFT</dt>" in text and "<dt>goodput</dt>" in text


def test_of_many_policies_the_chart_shows_the_best_and_the_table_all(
    run_folder, tmp_path
):
    folder = tmp_path / "many"
    shutil.copytree(run_folder, folder)
    for name in ("results", "curves"):
        table = pl.read_parquet(folder / f"{name}.parquet")
        lfu = table.filter(pl.col("policy") == "lfu")
        more = [
            lfu.with_columns(
                policy=pl.lit(f"p{i}"), block_hit_ratio=pl.col("block_hit_ratio") + i
            )
            for i in range(20)
        ]
        pl.concat([table, *more]).write_parquet(folder / f"{name}.parquet")
    about = json.loads((folder / "run.json").read_text())
    about["verdict"] = [f"sentence {i}" for i in range(11)]
    (folder / "run.json").write_text(json.dumps(about))
    text = page([read_run(folder)])
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert all(f">{name}<" in svg for name in ("lru", "belady", "p19", "p12"))
    assert ">p11<" not in svg and ">lfu<" not in svg and ">p0<" in text
    assert "the 8 best of 23 policies" in text
    assert "<summary>3 more</summary>" in text


def test_printed_tables_keep_their_headings(run_folder):
    (rule,) = re.findall(r"@media print { (.*?) }", page([read_run(run_folder)]))
    assert not rule.startswith("button")


def test_runs_of_real_engines_have_a_page(tmp_path):
    row = {"arm": "stock", "repeat": 0, "requests": 9, "hit_share": 0.25}
    pl.DataFrame([row, row | {"arm": "perc"}]).write_parquet(
        tmp_path / "results.parquet"
    )
    about = {"command": ["perc", "vllm-benchmark", "x"], "verdict": ["perc: half."]}
    about |= {"repeats": 1, "at_once": 8}
    (tmp_path / "run.json").write_text(json.dumps(about))
    text = page([read_run(tmp_path)])
    assert "perc: half." in text and "25.00 %" in text


def test_an_older_folder_without_groups_is_shown_without_them(run_folder, tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(run_folder, folder)
    (folder / "groups.parquet").unlink()
    assert "By turn" in page([read_run(run_folder)])
    assert "By turn" not in page([read_run(folder)])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: shutil.rmtree(f), "no such folder"),
        (lambda f: (f / "run.json").unlink(), "no run.json"),
        (lambda f: (f / "run.json").write_text("{"), "no JSON that can be read"),
        (lambda f: (f / "run.json").write_text("[]"), "one JSON object"),
        (lambda f: (f / "run.json").write_text("{}"), "no command that a report"),
        (lambda f: (f / "results.parquet").unlink(), "results.parquet is missing"),
        (lambda f: (f / "results.parquet").write_text("x"), "no parquet"),
    ],
)
def test_a_folder_that_is_no_run_is_named(run_folder, tmp_path, spoil, says):
    folder = tmp_path / "spoilt"
    shutil.copytree(run_folder, folder)
    spoil(folder)
    with pytest.raises(ValueError, match=says) as error:
        read_run(folder)
    assert str(folder) in str(error.value)


CLICKS = """<script>
const found = {};
const table = document.querySelector("table");
const column = (n) => [...table.tBodies[0].rows].map(r => r.children[n].dataset.value);
const heading = (n) => table.tHead.rows[0].children[n];
const press = (n) => heading(n).firstElementChild.click();
press(2); found.up = column(2).map(Number); found.says = heading(2).ariaSort;
press(2); found.down = column(2).map(Number);
press(1); found.names = column(1); found.before = heading(2).ariaSort;
const paper = () => getComputedStyle(document.body).backgroundColor;
found.papers = [paper()];
for (const _ of [1, 2]) {
  document.getElementById("theme").click();
  found.papers.push(paper());
}
found.focusable = heading(1).firstElementChild.tabIndex;
document.documentElement.scrollLeft = 999;
found.beyond = document.documentElement.scrollLeft;
document.title = "found " + JSON.stringify(found);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1200, 400])
def test_in_a_browser_headings_sort_and_the_theme_changes(run_folder, tmp_path, width):
    path = write_report([run_folder], tmp_path / "page.html", None)
    path.write_text(path.read_text().replace("</body>", CLICKS))
    dom = opened(path.as_uri(), tmp_path, f"--window-size={width},900")
    title = re.search(r"<title>found (.*?)</title>", dom, re.S)
    assert title is not None
    found = json.loads(title.group(1).replace("&quot;", '"'))
    assert found["up"] == sorted(found["up"]) and found["says"] == "ascending"
    assert found["down"] == found["up"][::-1]
    assert found["names"] == sorted(found["names"]) and found["before"] is None
    first, second, third = found["papers"]
    assert first != second and first == third
    assert found["focusable"] == 0 and found["beyond"] == 0
