"""The RAGPulse reader against an expansion of every prompt, token by token."""

import json
import lzma
import shutil
import tarfile

import pytest

from perc.errors import InputError, TraceWarning
from perc.traces import load

LISTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")


def load_quietly(path, **kwargs):
    with pytest.warns(TraceWarning, match=r"1 request\(s\) arrive before"):
        return load(path, **kwargs)


def expanded(folder, block_tokens: int) -> list[int]:
    """Oracle: numbers of all blocks, each known by all tokens up to its end."""
    lengths = {}
    for path in folder.glob("[1-5]*.jsonl"):
        for text in path.read_text().splitlines():
            segment, n_tokens = json.loads(text).values()
            lengths[segment] = n_tokens
    lines = (folder / "0_trace.jsonl").read_text().split("\n")
    requests = [json.loads(text) for text in lines if text]
    seen: dict[tuple, int] = {}
    numbers = []
    for request in sorted(requests, key=lambda r: int(r["timestamp"])):
        segments = [s for name in LISTS for s in request["hash_ids"][name]]
        tokens = [(s, i) for s in segments for i in range(lengths[s])]
        for end in range(block_tokens, len(tokens) + 1, block_tokens):
            numbers.append(seen.setdefault(tuple(tokens[:end]), len(seen)))
    return numbers


@pytest.mark.parametrize("block_tokens", [1, 3, 5, 16, 40, 1000])
def test_blocks_are_those_of_the_expanded_prompts(data_folder, block_tokens):
    folder = data_folder / "ragpulse"
    trace = load_quietly(folder, block_tokens=block_tokens)
    assert trace.block.tolist() == expanded(folder, block_tokens)


def test_sample(data_folder):
    trace = load_quietly(data_folder / "ragpulse")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (10, 29, 11)
    assert trace.block_tokens == 16
    assert trace.session.tolist() == [0, 0, 1, 2, 3, 3, 4, 4, 5, 6]
    assert trace.turn.tolist() == [1, 2, 1, 1, 1, 2, 1, 2, 1, 1]
    assert trace.kinds == ("rag", "rag+web")


def test_folder_archive_and_trace_file_are_the_same(data_folder, tmp_path):
    folder = data_folder / "ragpulse"
    plain = tmp_path / "all.tar"
    with tarfile.open(plain, "w") as tar:
        tar.add(folder, arcname="RAGPulse")
    packed = tmp_path / "all.tar.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    expected = load_quietly(folder).block.tolist()
    for path in (plain, packed, folder / "0_trace.jsonl"):
        assert load_quietly(path).block.tolist() == expected


def broken(data_folder, tmp_path, name: str, old: str, new: str):
    folder = tmp_path / "ragpulse"
    shutil.copytree(data_folder / "ragpulse", folder)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("0_trace.jsonl", "[10, 11]", "[10, 99]", r"'hash_ids.sys_prompt\[1\]' is 99"),
        ("0_trace.jsonl", "[10, 11]", "10", "'hash_ids.sys_prompt' is 10, must be a"),
        ("0_trace.jsonl", '"history"', '"past"', "'hash_ids.history' is missing"),
        ("0_trace.jsonl", '"timestamp": "0"', '"timestamp": "x"', "'timestamp' is 'x'"),
        ("0_trace.jsonl", '"input_length": 4', '"input_length": -4', "'input_length'"),
        ("2_passages.jsonl", '"passage_id": 1', '"passage_id": 0', "'passage_id' is 0"),
        ("3_history.jsonl", "11", "null", "3_history.jsonl, line 2: .*token_length"),
    ],
)
def test_what_is_wrong_is_named(data_folder, tmp_path, name, old, new, message):
    with pytest.raises(InputError, match=message):
        load(broken(data_folder, tmp_path, name, old, new))


def test_a_missing_file_is_named(data_folder, tmp_path):
    folder = tmp_path / "ragpulse"
    shutil.copytree(data_folder / "ragpulse", folder)
    (folder / "5_web_search.jsonl").unlink()
    with pytest.raises(InputError, match="5_web_search.jsonl: no such file"):
        load(folder)
    archive = tmp_path / "part.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(folder)
    with pytest.raises(InputError, match="5_web_search.jsonl missing"):
        load(archive)


def test_what_is_no_archive_is_told(write):
    with pytest.raises(InputError, match="no folder and no tar archive"):
        load(write("x" * 2000), format="ragpulse")
