"""Small valid files of every kind that perc reads, made once a process."""

import atexit
import contextlib
import functools
import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import perc
from perc.cli import main

DATA = Path(__file__).parents[1] / "data"


@functools.cache
def workshop() -> Path:
    """A folder that is gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="perc-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def quiet(*words: object) -> None:
    """Runs `perc ...`, which must end well."""
    with contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()):
            main([str(word) for word in words])


def data(*names: str) -> list[bytes]:
    """Files of tests/data."""
    return [(DATA / name).read_bytes() for name in names]


def lines(*rows: dict[str, Any]) -> bytes:
    """A file of JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def ragpulse() -> bytes:
    """The folder as a tar archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path in sorted((DATA / "ragpulse").iterdir()):
            tar.add(path, path.name)
    return made.getvalue()


@functools.cache
def trace_file() -> Path:
    """A trace as perc writes it."""
    path = workshop() / "trace.parquet"
    perc.save(perc.load(str(DATA / "mooncake.jsonl")), path)
    return path


@functools.cache
def tokenizer() -> Path:
    """A word a token."""
    import tokenizers

    words = {"[U]": 0, "you": 1, "are": 2, "what": 3, "is": 4, "a": 5, "cache": 6}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[U]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = workshop() / "tokenizer.json"
    made.save(str(path))
    return path


@functools.cache
def policy_file(kind: str) -> Path:
    """A policy of the registry, or a learned one that nobody has trained."""
    from perc.policies import store

    path = workshop() / f"{kind}.npz"
    if kind == "registry":
        return store.save_named(path, "perc_decay", {"tau_s": 60.0})
    from perc.policies.learned import Network, learned

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    bins = np.array([0, 60], np.float32)
    prices = np.array([0.001, 0.1], np.float32)
    layers = ((zeros(1, 1, 2), zeros(1, 2)),)
    given = ("hazard", ("turn",), bins, prices, zeros(1), zeros(1) + 1, layers)
    return store.save(path, learned(Network(*given, zeros(3, 2))))


@functools.cache
def run_folder(command: str) -> Path:
    """What `perc compare` or `perc plan` wrote with --out."""
    folder = workshop() / command
    if command == "plan":
        flags = ("--policies", "lru", "--bytes-per-token", 131072)
    else:
        flags = ("--policies", "lru", "--capacities", 4)
    quiet(command, trace_file(), *flags, "--out", folder)
    return folder


@functools.cache
def sweep_folder() -> Path:
    """A sweep that was killed before its rows were put together."""
    from perc.grid import configurations, read_grid
    from perc.sweep_store import begin, schema, write_part

    grid = read_grid(grid_file())
    folder = workshop() / "sweep"
    (folder / "parts").mkdir(parents=True)
    begin(folder, grid)
    row: dict[str, Any] = dict.fromkeys(schema(grid))
    row |= {"config": configurations(grid)[0].id, "trace_sha256": "x"}
    write_part(folder, grid, [row])
    return folder


@functools.cache
def grid_file() -> Path:
    """A grid of one configuration."""
    path = workshop() / "grid.toml"
    path.write_text(
        f'capacities = [4]\ntraces = ["{trace_file()}"]\npolicies=["lru"]\n'
    )
    return path


@functools.cache
def recording() -> Path:
    """A folder with the one part of a recording."""
    from perc.bridges.recording import Parts, Row

    folder = workshop() / "recording"
    parts = Parts(folder, 4, "a test")
    for n in range(3):
        blocks = np.arange(n + 1, dtype=np.uint64)
        times = (100.0 + n, 100.5 + n, 100.9 + n)
        parts.add(Row(*times, 4 * n + 5, 2, 0, n + 1, 0, False, n % 2, "chat", blocks))
    parts.flush()
    return folder


def copied(folder: Path, name: str, file: Path) -> Path:
    """A folder like that one, with a file of this name instead of its own."""
    target = file.parent / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    shutil.copyfile(file, target / name)
    return target


def events() -> list[bytes]:
    """Messages of an engine: runs of blocks that it has stored."""
    import msgspec

    fields = {"parent_block_hash": None, "token_ids": [1, 2], "block_size": 2}
    event = {"type": "BlockStored", "block_hashes": [7, 8], **fields, "medium": "GPU"}
    old = ["BlockStored", [9], 7, [1, 2], 2, None, "GPU"]
    return [msgspec.msgpack.encode([100.5, [event, old], 0])]


def job() -> bytes:
    """What a script of `perc render-job` writes."""
    answer = {"ttft_s": 0.1, "input_tokens": 8, "output": [1, 2], "hit_tokens": 4}
    result = {"repeat": 0, "answers": [answer, answer], "seconds": 2.0}
    told = {
        "arms": [{"name": "vllm"}, {"name": "lru"}],
        "repeats": 1,
        "at_once": 2,
        "requests": [{}, {}],
    }
    found = [{"arm": arm, **result} for arm in (0, 1)]
    return json.dumps({"job": told, "results": found}).encode()


def config() -> list[bytes]:
    """config.json of a dense model, of one with experts and of one with windows."""
    plain = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 1000,
        "torch_dtype": "bfloat16",
    }
    mixed = plain | {"num_local_experts": 4, "num_experts_per_tok": 2}
    sparse = {"num_experts": 4, "moe_intermediate_size": 32, "decoder_sparse_step": 2}
    windows = {"sliding_window": 256, "layer_types": ["full_attention"] * 4}
    found = (
        plain,
        {"text_config": plain, "quantization_config": {"quant_method": "fp8"}},
        mixed | {"model_type": "mixtral"},
        mixed | sparse | {"model_type": "qwen3_moe", "mlp_only_layers": [0]},
        plain | windows | {"model_type": "gemma3_text"},
    )
    return [json.dumps(one).encode() for one in found]


def points() -> bytes:
    """Times and lengths of a measured accelerator."""
    return (
        b"kind,tokens,batch,seconds\nprefill,1024,1,0.05\nprefill,4096,1,0.2\n"
        b"decode,1024,8,0.02\ndecode,2048,16,0.03\n"
    )


def measured() -> bytes:
    """Times of first tokens, for `perc lab summarize`."""
    row = {"pass": "cold", "doc": 0, "doc_tokens": 5011, "total_ms": 20}
    both = (("baseline", 10.04), ("lmcache", 1.04))
    return lines(*(row | {"config": name, "ttft_ms": ms} for name, ms in both))
