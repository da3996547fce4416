"""Bad input to `perc compare`: what is wrong, where, and what to do. Exit code 2."""

import gzip

import pytest

from tests.cli.conftest import DATA

GOOD = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}'


@pytest.fixture
def second_line(tmp_path):
    """A Mooncake trace whose second line is changed as asked."""

    def write(old: str, new: str):
        assert old in GOOD
        path = tmp_path / "trace.jsonl"
        path.write_text(GOOD + "\n" + GOOD.replace(old, new) + "\n")
        return path

    return write


def test_missing_file(refused, tmp_path):
    said = refused("compare", tmp_path / "gone.jsonl")
    assert "gone.jsonl" in said.err and "check the path" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "gone.jsonl", "--out", "new/run"),
        ("simulate", "gone.jsonl", "--out", "new/run"),
        ("convert", "gone.jsonl", "new/x.parquet"),
        ("trace-from-prompts", "gone", "--tokenizer", "t", "--out", "new/x.parquet"),
        ("train", "gone.jsonl", "--out", "new/x.npz"),
    ],
    ids=lambda words: words[0],
)
def test_no_folder_is_left_by_what_fails(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    refused(*words)
    assert not list(tmp_path.iterdir())


def test_places_that_take_no_file(refused, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for out, why in ((file, "is a file"), (file / "x" / "y", "Not a directory")):
        said = refused("compare", "gone.jsonl", "--out", out).err
        assert f"{out}" in said and why in said and "choose another folder" in said


def test_missing_result_of_a_job(refused, tmp_path):
    said = refused("show-job", tmp_path / "gone.json")
    assert "gone.json: No such file or directory; check the path." in said.err


def test_empty_file(refused, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.touch()
    said = refused("compare", path)
    assert f"{path}: the file is empty" in said.err


def test_truncated_gzip(refused, mooncake, tmp_path):
    whole = gzip.compress(mooncake.read_bytes())
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    said = refused("compare", path)
    assert f"{path}: cut short" in said.err and "fetch it again" in said.err


def test_folder(refused, tmp_path):
    assert "give a file" in refused("compare", tmp_path).err


def test_unknown_content(refused, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    said = refused("compare", path)
    assert "unknown format" in said.err and "mooncake" in said.err


def test_negative_length(refused, second_line):
    path = second_line("600", "-600")
    said = refused("compare", path)
    assert f"{path}, line 2: field 'input_length' is -600" in said.err
    assert "Mend or drop the line" in said.err


def test_hash_ids_out_of_proportion(refused, second_line):
    path = second_line("[0, 1]", "[0, 1, 2, 3]")
    said = refused("compare", path)
    assert f"{path}, line 2: hash_ids has 4 block ids, but 600 tokens" in said.err
    assert "make 2" in said.err and "--block-tokens" in said.err


def test_negative_time_stamp(refused, second_line):
    path = second_line('"timestamp": 0', '"timestamp": -1')
    said = refused("compare", path)
    assert f"{path}, line 2: field 'timestamp' is -1" in said.err


def test_trace_without_blocks(refused):
    said = refused("compare", DATA / "azure.csv")
    assert "azure.csv has no block ids" in said.err and "perc make" in said.err


@pytest.mark.parametrize(
    "wrong, right",
    [
        ("--polices", "--policies"),
        ("--capacites", "--capacities"),
        ("--warm-up", "--warmup"),
        ("--jsn", "--json"),
        ("--outt", "--out"),
        ("--block-token", "--block-tokens"),
    ],
)
def test_misspelt_flag_is_answered_with_the_right_one(refused, mooncake, wrong, right):
    said = refused("compare", mooncake, wrong, "1")
    assert wrong in said.err
    assert f"Perhaps you meant: {right} " in said.words


def test_misspelt_command(refused):
    said = refused("compere")
    assert "compere" in said.err and "compare, cost, curve, explain" in said.words


def test_a_script_that_is_a_folder(refused, mooncake, tmp_path):
    flags = ("--models", "tiny", "--script", tmp_path)
    said = refused("render-job", mooncake, *flags)
    assert f"--script {tmp_path}: name a file that ends in .py" in said.words


def test_value_of_the_wrong_type(refused, mooncake):
    said = refused("compare", mooncake, "--warmup", "half")
    assert "--warmup" in said.err and "'half'" in said.err


@pytest.mark.parametrize(
    "flag, value, said_of_it",
    [
        ("--capacities", "-5", "a capacity of -5 blocks; give 0 or more"),
        ("--capacities", "1.5", "a capacity of 1.5 is no share of the working set"),
        ("--capacities", "nan", "a capacity of nan is no share of the working set"),
        ("--capacities", "many", "'many' is no capacity. Give blocks (4096) or shares"),
        ("--capacities", "", "'' is no capacity. Give blocks (4096) or shares"),
        ("--policies", "", "no policy given; for example"),
        ("--policies", "lru,lruu", "no policy is called 'lruu'. There are: lru, fifo"),
        ("--policies", "lru,lru", "policy 'lru' is given twice"),
        (
            "--policies",
            "perc_decay:tau=60",
            "no parameter 'tau'. It has: tau_s, cost_weight",
        ),
        ("--policies", "lru:k=2", "'lru' has no parameter 'k'. It has none"),
        ("--policies", "perc_decay:tau_s", "tau_s is '', must be a finite number"),
        ("--policies", "gdsf:retained=yes", "retained is 'yes', must be true or false"),
        ("--policies", "priority:merge=sum", "merge"),
        ("--policies", "perc_decay:tau_s=x", "tau_s is 'x', must be a finite number"),
        ("--policies", "perc_decay:tau_s=-1", "tau_s is -1, must be 0 or more"),
        (
            "--policies",
            "perc_decay:tau_s=nan",
            "tau_s is 'nan', must be a finite number",
        ),
        (
            "--policies",
            "perc_decay:tau_s=inf",
            "tau_s is 'inf', must be a finite number",
        ),
        ("--policies", "random:seed=1.5", "seed is '1.5', must be a whole number"),
        (
            "--policies",
            "random:seed=-1",
            "random: seed is -1, must be a whole number",
        ),
        ("--policies", "s3fifo:threshold=99999999999", "must be a whole number from 1"),
        ("--policies", "ttl:least=99999999999", "must be a whole number from 0"),
        (
            "--policies",
            "gds:cost_weight=50",
            "cost_weight is 50, must be 0 or more",
        ),
        ("--policies", "perc_published:horizon_s=0", "must be above 0"),
        ("--warmup", "1", "a warm-up share of 1.0; give 0"),
        ("--warmup", "-0.1", "a warm-up share of -0.1; give 0"),
        ("--format", "csv", "--format csv is unknown"),
        ("--block-tokens", "0", "--block-tokens is 0, must be 1 or more"),
    ],
)
def test_value_out_of_range(refused, mooncake, flag, value, said_of_it):
    assert said_of_it in refused("compare", mooncake, flag, value).err


@pytest.mark.parametrize(
    "policy",
    [
        "perc_decay:tau_s=0:cost_weight=1e39",  # beyond float32: 0 * inf
        "perc_published:recompute_s_per_token=1e39:horizon_s=1e-30",
    ],
)
def test_parameters_beyond_float32_are_refused(refused, mooncake, policy):
    said = refused("compare", mooncake, "--policies", policy)
    assert "1e+39" in said.err or "1e39" in said.err


def test_flag_file_that_is_missing(refused):
    said = refused("compare", "@gone.toml")
    assert "@gone.toml" in said.err and "Give a TOML file" in said.err


def test_flag_file_that_is_no_toml(refused, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("policies = lru")
    assert f"@{path}" in refused("compare", f"@{path}").err


def test_flag_file_with_a_table(refused, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[policies]\nlru = 1\n")
    assert "policies is a table" in refused("compare", f"@{path}").err


def test_flag_file_with_a_misspelt_key(refused, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("polices = ['lru']\n")
    assert "Perhaps you meant: --policies" in refused("compare", f"@{path}").words


@pytest.mark.parametrize("folder", ["/proc/perc", "/dev/null"])
def test_folder_that_cannot_be_written_to(refused, mooncake, folder):
    said = refused("compare", mooncake, "--capacities", "8", "--out", folder)
    assert folder in said.err and "choose another folder" in said.err


def test_file_in_place_of_the_folder(refused, mooncake, tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    said = refused("compare", mooncake, "--capacities", "8", "--out", path)
    assert str(path) in said.err and path.read_text() == "mine"
