"""`perc plan`: tables, JSON, the folder, and what is refused."""

import json

import polars as pl
import pytest

POINT = ["policy", "capacity_blocks", "capacity_gib", "block_hit_ratio"]
KEYS = [
    "trace",
    "definitions",
    "points",
    "needs",
    "knees",
    "ideal_block_hit_ratio",
    "clairvoyant",
    "break_even",
    "returns",
]


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A file of a few minutes of chat."""
    import perc

    path = tmp_path_factory.mktemp("traces") / "chat.parquet"
    perc.save(perc.make("chat", requests=600), path)
    return path


def test_json_is_one_object_of_the_promised_keys(perc, mooncake):
    said = perc("plan", mooncake, "--policies", "lru,belady", "--json")
    assert said.code == 0 and "done in" in said.err
    found = json.loads(said.out)
    assert list(found) == KEYS
    assert list(found["points"][0])[:4] == POINT
    assert found["trace"]["source"] == str(mooncake)
    assert found["clairvoyant"] == ["belady"]
    assert [need["goal"] for need in found["needs"]] == ["share_of_ideal"] * 6


def test_tables_and_sentences_tell_what_json_tells(perc, chat):
    flags = ("plan", chat, "--target", "0.1", "--ttft-budget", "4")
    needs = json.loads(perc(*flags, "--json").out)["needs"]
    said = perc(*flags)
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80
    assert "…" not in said.out
    assert "10 % of blocks" in said.words and "TTFT p95 <= 4 s" in said.words
    for need in needs:
        assert f"{need['capacity_blocks']:,}" in said.out
    assert "Knee of lru" in said.words and "belady*" in said.words
    assert "Llama-3-8B at 16 bits" in said.words
    assert "Not covered: sessions displacing each other" in said.words


def test_the_default_targets_have_a_headline_each(perc, chat):
    said = perc("plan", chat, "--policies", "lru,perc")
    for share in (50, 80, 95):
        assert f"{share} % of the ideal:" in said.words
    assert "GiB" in said.words and "points" in said.words


def test_a_target_out_of_reach_is_never(perc, mooncake):
    said = perc("plan", mooncake, "--target", "0.99")
    assert "never" in said.out
    assert "no cache reaches it; with everything cached it is 54.3%" in said.words


def test_few_sessions_are_told_and_no_samples_give_no_interval(perc, mooncake):
    said = perc("plan", mooncake)
    assert "sessions are few" in said.err
    said = perc("plan", mooncake, "--bootstrap", "0")
    assert "sessions are few" not in said.err and "±" not in said.out.split("±:")[0]


def test_no_reuse_is_told(perc, tmp_path):
    trace = tmp_path / "once.jsonl"
    row = '{"timestamp": %d, "input_length": 8, "output_length": 1, "hash_ids": [%d]}\n'
    trace.write_text("".join(row % (k, k) for k in range(9)))
    said = perc("plan", trace)
    assert said.code == 0 and "±" not in said.out
    assert "No counted request finds a block seen before" in said.words


def test_the_folder_holds_the_plan_and_its_charts(perc, mooncake, tmp_path):
    folder = tmp_path / "deep" / "plan"
    said = perc("plan", mooncake, "--json", "--out", folder)
    names = ["needs.parquet", "plan.html", "plan.json", "plan.parquet", "plan.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(str(folder / name) in said.err for name in names)
    printed = json.loads(said.out)
    stored = json.loads((folder / "plan.json").read_text())
    assert {key: stored[key] for key in printed} == printed
    assert stored["schema_version"] == 1 and stored["command"][0] == "perc"
    assert len(stored["trace_sha256"]) == 64
    points = pl.read_parquet(folder / "plan.parquet").to_dicts()
    assert points == printed["points"]
    assert (folder / "plan.png").read_bytes().startswith(b"\x89PNG")
    html = (folder / "plan.html").read_text()
    assert "saved_s_per_gib_hour" in html and "block_hit_ratio_low" in html


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--target", "30"], "target hit ratio of 30"),
        (["--token-target", "0"], "target hit ratio of 0"),
        (["--ttft-budget", "-1"], "TTFT budget of -1"),
        (["--bytes-per-token", "0"], "bytes per token; give 2 * layers"),
        (["--policies", "best"], "no policy is called 'best'"),
        (["--capacities", "many"], "'many' is no capacity"),
        (["--warmup", "1"], "warm-up share of 1"),
    ],
)
def test_bad_input_is_refused(refused, mooncake, flags, words):
    assert words in refused("plan", mooncake, *flags).words


def test_a_trace_without_blocks_is_refused(refused):
    from tests.cli.conftest import DATA

    assert "no block ids" in refused("plan", DATA / "azure.csv").words


def test_help_explains_the_flags(perc):
    said = perc("plan", "--help")
    assert said.code == 0
    for word in ("--target", "--ttft-budget", "--bytes-per-token", "without a queue"):
        assert word in said.words


def test_break_even_of_each_link(perc, chat):
    flags = ("plan", chat, "--policies", "lru", "--links", "pcie5,rdma-400g")
    found = json.loads(perc(*flags, "--json").out)
    assert [row["link"] for row in found["break_even"]] == ["pcie5", "rdma-400g"]
    said = perc(*flags)
    for row in found["break_even"]:
        assert f"{row['first']:.3g}" in said.out
    assert "Used again:" in said.words and "of blocks used once" in said.words
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80


def test_an_unknown_link_is_refused(refused, chat):
    assert "pcie9" in refused("plan", chat, "--links", "pcie9").words
