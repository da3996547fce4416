"""Policies as files: what comes back, and what no file can do to its reader."""

import io
import json
import os
import re
import struct
import time
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perc import npz
from perc.errors import InputError
from perc.policies import store
from perc.policies.registry import registry
from perc.policies.store import Kind, describe, load, save, save_named, with_files
from perc.traces.hashing import hash_of
from perc.types import OnlinePolicy, Policy

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
ABOUT = {"method": "by hand", "seed": 3, "held_out": {"block_hit_ratio": 0.25}}


def _score(params, f):
    return params["w"][f.turn % len(params["w"])] + params["b"]


def stand_in(w=(1.0, 2.5), b=0.5) -> Policy:
    """A policy whose numbers are no constructor's arguments."""
    params = {"w": jnp.asarray(w, jnp.float32), "b": jnp.float32(b)}
    return Policy(params, _score, "stand_in", uses=("turn",))


def _build(settings, arrays):
    if set(arrays) != {"w"} or arrays["w"].ndim != 1:
        raise InputError("a stand-in has weights [n].")
    return stand_in(arrays["w"], settings["b"])


def _take_apart(policy):
    if policy.name != "stand_in":
        return None
    return {"b": float(policy.params["b"])}, {"w": policy.params["w"]}


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    monkeypatch.setitem(store.KINDS, "stand_in", Kind(_build, _take_apart))


@pytest.fixture
def good(tmp_path) -> Path:
    return save(tmp_path / "good.npz", stand_in(), about=ABOUT)


def equal(one, other) -> bool:
    a, b = jax.tree.leaves(one), jax.tree.leaves(other)
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(a, b, strict=True)
    )


# What comes back.


def test_a_policy_comes_back(good):
    assert equal(load(good), stand_in())
    header = describe(good)
    assert header.about == ABOUT
    assert (header.kind, header.uses, header.settings) == (
        "stand_in",
        ("turn",),
        {"b": 0.5},
    )
    assert header.arrays == {"w": store.Facts("<f4", (2,))}


@pytest.mark.parametrize("name", registry)
def test_every_policy_of_the_registry_comes_back(tmp_path, name):
    path = save(tmp_path / "p.npz", registry[name]())
    assert equal(load(path), registry[name]())
    assert describe(path).kind == "registry"
    assert describe(path).uses == registry[name]().uses


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("perc_decay", {"tau_s": 0.1, "cost_weight": 1.0}),
        ("perc", {"smoothing": 1e-3, "horizon_s": 3.0, "cost_weight": 0.7}),
        ("random", {"seed": 2**32 - 1}),
        ("s3fifo", {"small": 0.2, "threshold": 3}),
    ],
)
def test_parameters_are_found_in_a_policy(tmp_path, name, parameters):
    policy = registry[name](**parameters)
    path = save(tmp_path / "p.npz", replace(policy, name=f"{name}:any=1"))
    assert equal(load(path), policy)
    found = describe(path).settings["parameters"]
    assert parameters.items() <= found.items()  # 0.1, not 0.10000000149


@pytest.mark.parametrize(
    "policy",
    [
        registry["lru_k"](k=3),  # in no parameter
        replace(registry["lru"](), bypass=True),
        replace(registry["lru"](), name="mine"),
        replace(registry["perc_decay"](), params={"tau_s": jnp.ones(3)}),
        replace(stand_in(), params={"w": jnp.ones(2), "b": jnp.float32(1), "c": 1}),
    ],
)
def test_a_policy_that_would_come_back_as_another_is_refused(tmp_path, policy):
    with pytest.raises(InputError, match="cannot be stored.*save_named"):
        save(tmp_path / "p.npz", policy)
    assert not list(tmp_path.iterdir())


def test_flags_are_saved_by_name(tmp_path):
    flags = {"k": 3, "retained": True}
    path = save_named(tmp_path / "p.npz", "lru_k", flags, about=ABOUT)
    assert equal(load(path), registry["lru_k"](**flags))
    assert describe(path).settings == {"name": "lru_k", "parameters": flags}


@pytest.mark.parametrize(
    "name, parameters, message",
    [
        ("lruu", {}, "no policy is called 'lruu'"),
        ("lru", {"k": 1}, "no parameter 'k'"),
        ("lru_k", {"k": 2.0}, "k is '2.0', must be of type int"),
        ("lru_k", {"k": True}, "k is 'True', must be of type int"),
        ("lru_k", {"k": 99}, "from 1 to 8"),
        ("lru_k", {"retained": 1}, "retained is '1', must be of type bool"),
        ("perc_decay", {"tau_s": "60"}, "tau_s is '60', must be of type float"),
        ("perc_decay", {"tau_s": float("nan")}, "JSON"),
        ("perc_decay", {"tau_s": np.float32(1)}, "JSON"),
    ],
)
def test_what_the_registry_cannot_build_is_not_saved(
    tmp_path, name, parameters, message
):
    with pytest.raises(InputError, match=message):
        save_named(tmp_path / "p.npz", name, parameters)
    assert not list(tmp_path.iterdir())


def test_the_same_policy_gives_the_same_bytes(tmp_path, monkeypatch):
    one = save(tmp_path / "one.npz", stand_in(), about=ABOUT).read_bytes()
    monkeypatch.setattr(time, "time", lambda: 2e9)
    shuffled = dict(reversed(ABOUT.items()))
    two = save(tmp_path / "two.npz", stand_in(), about=shuffled).read_bytes()
    assert one == two
    other = save(tmp_path / "three.npz", stand_in(b=1), about=ABOUT)
    assert other.read_bytes() != one


def test_numpy_reads_it_without_pickle(good):
    with np.load(good, allow_pickle=False) as file:
        header = json.loads(file[npz.HEADER].tobytes())
        np.testing.assert_array_equal(file["w"], np.array([1.0, 2.5], np.float32))
    assert header["format"] == "perc policy" and header["about"] == ABOUT


def test_a_failed_write_leaves_the_old_file(good, monkeypatch):
    before = good.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="cannot be written .No space left"):
        save(good, stand_in(b=7))
    assert good.read_bytes() == before
    assert list(good.parent.iterdir()) == [good]


@pytest.mark.parametrize(
    "about, message",
    [
        ({"x": object()}, "JSON"),
        ({"x": float("inf")}, "JSON"),
        ({"x": 10**30}, "more than 19 digits"),
        ({1: "a", "1": "b"}, "a key stands twice"),
        ({"x": "a" * (1 << 20)}, "Say less about the training"),
        ({"x": json.loads("[" * 40 + "]" * 40)}, "more than 32 levels"),
    ],
)
def test_a_record_that_no_file_can_hold(tmp_path, about, message):
    with pytest.raises(InputError, match=f"p.npz: .*{message}"):
        save(tmp_path / "p.npz", stand_in(), about=about)
    assert not list(tmp_path.iterdir())


def test_names_that_are_no_policy_file(tmp_path):
    with pytest.raises(InputError, match="p.txt: a policy file ends in .npz"):
        save(tmp_path / "p.txt", stand_in())
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="folder.npz: is a folder; choose another"):
        save(tmp_path / "folder.npz", stand_in())
    with pytest.raises(InputError, match="/dev/null/p.npz: .*choose another folder"):
        save("/dev/null/p.npz", stand_in())


def test_the_hash_of_the_training_data_goes_in(tmp_path, small_chat):
    about = {"trace_sha256": hash_of(small_chat)}
    path = save(tmp_path / "p.npz", stand_in(), about=about)
    assert describe(path).about["trace_sha256"] == hash_of(small_chat)


@pytest.mark.skipif(not FORMATS.is_file(), reason="run away from a checkout")
def test_the_example_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", FORMATS.read_text(), re.DOTALL)
    exec(compile(code, "formats.md", "exec"), {})
    assert "'tau_s': Array(60." in capsys.readouterr().out
    assert equal(load("flags.npz"), registry["lru_k"](k=3, retained=True))


# Names in tables.


def test_a_file_is_called_by_its_stem_or_its_path(tmp_path):
    def saved(name):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return str(save(tmp_path / name, stand_in()))

    mine, lru = saved("mine.npz"), saved("lru.npz")
    one, two, made = saved("a/same.npz"), saved("b/same.npz"), saved("made.npz")
    policy = replace(stand_in(), name="made")
    found = with_files([mine, lru, one, two, policy, Path(made)])
    names = [p.name for p in found]
    assert names == ["mine", lru, one, two, "made", made]
    assert found[4] is policy


# Files from elsewhere.


def rewritten(path: Path, change) -> Path:
    """The file with other members, its zip in order."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


def npy(array, allow_pickle=False) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), (1, 0), allow_pickle)
    return file.getvalue()


def with_header(path: Path, change, *, sign=True) -> Path:
    """The file with another header, its checksum in order."""

    def swap(parts):
        table = json.loads(parts[f"{npz.HEADER}.npy"][npz_start(parts) :])
        change(table)
        arrays = {
            name.removesuffix(".npy"): npz.to_array(name, raw)
            for name, raw in parts.items()
            if name != f"{npz.HEADER}.npy"
        }
        if sign:
            table["sha256"] = store._checksum(table, arrays)
        text = npz.canonical(table)
        parts[f"{npz.HEADER}.npy"] = npy(np.frombuffer(text, np.uint8))

    return rewritten(path, swap)


def npz_start(parts) -> int:
    return parts[f"{npz.HEADER}.npy"].index(b"\n") + 1


def with_text(path: Path, text: bytes) -> Path:
    def swap(parts):
        parts[f"{npz.HEADER}.npy"] = npy(np.frombuffer(text, np.uint8))

    return rewritten(path, swap)


def assert_refused(path, message, remedy=""):
    with pytest.raises(InputError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert message in text and remedy in text
    assert len(text) < 800 and text.isprintable()


def test_the_tools_of_these_tests_change_nothing_by_themselves(good):
    with_header(rewritten(good, lambda parts: None), lambda table: None)
    assert equal(load(good), stand_in())


@pytest.mark.parametrize(
    "content, message, remedy",
    [
        (b"", "is empty", "write it anew"),
        (b"hello\n", "is no .npz file", "Give a file"),
        (b"PK", "is no .npz file", "Give a file"),
        (b"PK\x05\x06" + bytes(18), "is no .npz file", "Give a file"),
        (b"PK\x03\x04" + bytes(100), "cut short", "Fetch the file again"),
        (b"PK\x03\x04PK\x05\x06" + bytes(18), "no policy", "Give a file"),
        (b"\x80\x04K\x01.", "is no .npz file", "Give a file"),  # a pickle
    ],
)
def test_what_is_no_zip(tmp_path, content, message, remedy):
    path = tmp_path / "p.npz"
    path.write_bytes(content)
    assert_refused(path, message, remedy)


def test_every_cut_is_noticed(good):
    whole = good.read_bytes()
    for end in [*range(0, len(whole), 7), len(whole) - 1]:
        good.write_bytes(whole[:end])
        assert_refused(good, "", "")
    good.write_bytes(whole + b"\0")
    assert_refused(good, "something was added behind it", "Fetch")


def test_what_is_no_file(tmp_path, good):
    assert_refused(tmp_path / "gone.npz", "no such file", "check the path")
    assert_refused(tmp_path, "is a folder", "give the file in it")
    assert_refused(good / "p.npz", "cannot be read", "mend that")
    os.mkfifo(tmp_path / "pipe.npz")
    assert_refused(tmp_path / "pipe.npz", "is no plain file", "copy it")
    with pytest.raises(InputError, match="cannot be a path"):
        load("a\0b.npz")


def test_a_file_that_may_not_be_read(good, monkeypatch):
    def refuse(*args, **kwargs):  # chmod does not stop root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert_refused(good, "cannot be read (Permission denied)", "mend that")


def test_a_foreign_npz(tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, weights=np.ones(3))
    assert_refused(path, "no policy", "Give a file")
    np.savez_compressed(path, weights=np.ones(3))
    assert_refused(path, "is compressed", "Give a file")
    np.savez(path, perc_header=np.ones(3))
    assert_refused(path, "header that is no text", "Give a file")
    path.write_bytes(b"")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    assert_refused(path, "holds 'word/document.xml', no array", "Give a file")


class Bomb:
    """Unpickling it leaves a trace."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("name", ["w", npz.HEADER])
def test_objects_are_never_unpickled(good, monkeypatch, name):
    monkeypatch.chdir(good.parent)
    bomb = npy(np.array([Bomb()], dtype=object), allow_pickle=True)
    rewritten(good, lambda parts: parts.update({f"{name}.npy": bomb}))
    assert_refused(good, "'|O'", "unpickles nothing")
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "no good JSON"),
        (b"{", "no good JSON"),
        (b"[]", "a list, no object"),
        (b"\xff\xfe", "no good JSON"),
        (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b'{"about": {"a": 1, "a": 2}}', "a key stands twice"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": -Infinity}', "not finite"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": ' + b"9" * 6000 + b"}", "more than 19 digits"),
        (b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}", "more than 32 levels"),
        (b'{"a": ' + b"[" * 400_000 + b"}", "no good JSON"),
        (b" " * (npz.HEADER_LIMIT_BYTES + 1), "too long"),
    ],
)
def test_headers_that_are_no_good_json(good, text, message):
    assert_refused(with_text(good, text), message)


@pytest.mark.parametrize(
    "change, message, remedy",
    [
        (dict(format="numpy zoo"), "its format is 'numpy zoo'", "Give a file"),
        (dict(version=2), "format version 2, this perc reads 1", "Update perc"),
        (dict(version=True), "version 'True', no whole number", "Fetch"),
        (dict(version=0), "version '0', no whole number", "Fetch"),
        (dict(kind="neural"), "kind 'neural'; this perc has registry", "Update perc"),
        (dict(kind="\x1b[31m\ud800" * 99), "kind '\\x1b[31m\\ud800", "Update perc"),
        (dict(kind=7), "header field kind is '7', must be a str", "Fetch"),
        (dict(settings=[]), "header field settings", "Fetch"),
        (
            dict(settings={}),
            "makes no policy of kind 'stand_in' (KeyError: 'b')",
            "Fetch",
        ),
        (
            dict(settings={"b": {}}),
            "makes no policy of kind 'stand_in' (TypeError",
            "Fetch",
        ),
        (dict(about=None), "header field about is 'None'", "Fetch"),
        (dict(uses=["mood"]), "a feature 'mood'", "Update perc"),
        (dict(uses=[[]]), "a feature '[]'", "Update perc"),
        (dict(extra=1), "one too many, header field 'extra'", "Fetch"),
        (dict(arrays={}), "one too many, array 'w'", "Fetch"),
        (dict(arrays={"w": 1}), "header of array 'w' is '1'", "Fetch"),
        (
            dict(arrays={"w": {"dtype": "<f4", "shape": [True, 2]}}),
            "header of array 'w'",
            "Fetch",
        ),
        (
            dict(arrays={"w": {"dtype": "<i4", "shape": [2]}}),
            "array 'w' is <f4 (2,), its header says '<i4' '(2,)'",
            "Fetch",
        ),
        (
            dict(arrays={"w": {"dtype": "<f4", "shape": [2, 1]}}),
            "array 'w' is <f4 (2,), its header says '<f4' '(2, 1)'",
            "Fetch",
        ),
        (
            dict(arrays={k: {"dtype": "<f4", "shape": [2]} for k in "wx"}),
            "lacks array 'x'",
            "Fetch",
        ),
    ],
)
def test_headers_that_say_what_is_not_so(good, change, message, remedy):
    assert_refused(with_header(good, lambda t: t.update(change)), message, remedy)


def test_a_header_without_a_field(good):
    with_header(good, lambda table: table.pop("kind"))
    assert_refused(good, "lacks header field 'kind'", "Fetch")


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "has a name and parameters"),
        ({"name": ["lru"], "parameters": {}}, "has the name"),
        ({"name": "lru", "parameters": []}, "has the name"),
        ({"name": "gone", "parameters": {}}, "no policy is called 'gone'"),
        ({"name": "lru", "parameters": {"k": 1}}, "no parameter 'k'. It has: none"),
        ({"name": "lru_k", "parameters": {"k": 10**18}}, "from 1 to 8"),
        ({"name": "perc_decay", "parameters": {"tau_s": 1e300}}, "finite"),
        ({"name": "priority", "parameters": {"merge": "sum"}}, "merge"),
    ],
)
def test_policies_that_the_registry_does_not_have(tmp_path, settings, message):
    path = save_named(tmp_path / "p.npz", "lru")
    assert_refused(with_header(path, lambda t: t.update(settings=settings)), message)


def test_a_named_policy_has_no_arrays(good):
    named = dict(kind="registry", settings={"name": "lru", "parameters": {}})
    assert_refused(with_header(good, lambda t: t.update(named)), "a name and param")


def test_a_number_that_was_changed_is_noticed(good):
    changed = npy(np.array([1.0, 2.75], np.float32))
    rewritten(good, lambda parts: parts.update({"w.npy": changed}))
    assert_refused(good, "its sha256 is another", "Fetch")


@pytest.mark.parametrize("change", [dict(settings={"b": 0.75}), dict(about={})])
def test_a_setting_that_was_changed_is_noticed(good, change):
    with_header(good, lambda table: table.update(change), sign=False)
    assert_refused(good, "its sha256 is another", "Fetch")


@pytest.mark.parametrize(
    "header, message",
    [
        (b"{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", "Fortran"),
        (b"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "'>f4'"),
        (b"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "'<c8'"),
        (b"{'descr': '|V4', 'fortran_order': False, 'shape': (2,), }", "'|V4'"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "not fit"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "not fit"),
        (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999,), }",
            "not fit",
        ),
        (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, "
            + b"9999999999, " * 6
            + b"), }",
            "not fit",
        ),
        (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, "
            + b"1, " * 7
            + b"1), }",
            "not fit",
        ),
        (b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "no "),
        (b"__import__('os').mkdir('exploded')", "no plain numpy header"),
        (b"(" * 9000, "no plain numpy header"),
        (b"1" * 60_000, "no plain numpy header"),
    ],
)
def test_arrays_that_are_not_plain(good, header, message):
    text = header + b"\n"
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(8)
    assert_refused(rewritten(good, lambda p: p.update({"w.npy": raw})), message)
    cut = b"\x93NUMPY\x01\x00" + struct.pack("<H", 9999) + text + bytes(8)
    assert_refused(rewritten(good, lambda p: p.update({"w.npy": cut})), "array 'w'")


PLAIN = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"


@pytest.mark.parametrize(
    "shape, size, content, message",
    [
        (b"2,", 0, bytes(8), None),
        (b"2,", 1, bytes(8), "no plain numpy header"),  # says that it is longer
        (b"0, 9999999999, 9999999999", 0, b"", "does not fit its 0 bytes"),
        (b"0, 1, 1, 1, 1, 1, 1, 1, 1", 0, b"", "does not fit its 0 bytes"),  # 9 axes
    ],
)
def test_numpy_headers_that_lie(shape, size, content, message):
    text = PLAIN % shape
    length = struct.pack("<H", len(text) + size)
    raw = b"\x93NUMPY\x01\x00" + length + text + content
    if message is None:
        assert npz.to_array("a", raw).tolist() == [0, 0]
        return
    with pytest.raises(InputError, match=message):
        npz.to_array("a", raw)


def test_sizes_of_64_bits(good):
    """An extra field may move a member beyond what a file position can say."""
    data = good.read_bytes()
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = bytearray(data[start:end])
    name = struct.unpack_from("<H", entry, 28)[0]
    struct.pack_into("<H", entry, 30, 12)
    struct.pack_into("<L", entry, 42, 0xFFFFFFFF)
    entry[46 + name : 46 + name] = struct.pack("<HHQ", 1, 8, 2**64 - 1)
    tail = bytearray(data[end:])
    struct.pack_into("<L", tail, 12, len(entry))
    good.write_bytes(data[:start] + entry + tail)
    assert_refused(good, "is damaged", "Fetch")


def test_arrays_of_every_dtype_and_shape_come_back():
    for dtype in npz.DTYPES:
        for shape in [(), (0,), (3,), (0, 2), (2, 3, 1), (1,) * 8]:
            array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
            given = npz.plain_array("a", np.asarray(array.T, order="F"))
            found = npz.to_array("a", npz.members(npz.pack({}, {"a": given}))["a"])
            assert found.dtype == array.dtype and found.shape == array.T.shape
            np.testing.assert_array_equal(found, array.T)
            assert found.flags.writeable and found.flags.c_contiguous


@pytest.mark.parametrize(
    "array, message",
    [
        (np.array(["a"]), "store numbers"),
        (np.array([None]), "store numbers"),
        (np.array([True]), "store numbers"),
        (np.ones(2, complex), "store numbers"),
        (np.ones((1,) * 9), "9 axes"),
    ],
)
def test_arrays_that_no_file_can_hold(array, message):
    with pytest.raises(InputError, match=message):
        npz.plain_array("a", array)
    for name in ("", "a/b", "../a", npz.HEADER, "ä", "a" * 65):
        with pytest.raises(InputError, match="cannot name an array"):
            npz.plain_array(name, np.ones(1))


def bomb(path: Path, **sizes) -> Path:
    """A small file that declares or inflates to a lot."""
    zeros = npy(np.zeros(sizes.get("inflated", 1), np.uint8))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{npz.HEADER}.npy", zeros)
        for i in range(sizes.get("members", 0)):
            archive.writestr(f"a{i}.npy", b"")
    return path


def overlapping(path: Path) -> Path:
    """Two hundred entries of a directory that share one megabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("a000.npy"), bytes(1 << 20))
    data = file.getvalue()
    start = data.index(b"PK\x01\x02")
    entry = data[start : data.index(b"PK\x05\x06")]
    entries = b"".join(entry.replace(b"a000.npy", b"a%03d.npy" % i) for i in range(200))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 200, 200, len(entries), start, 0)
    path.write_bytes(data[:start] + entries + end)
    return path


def sparse(path: Path) -> Path:
    """A file of a terabyte, of which the disk holds nothing but the start."""
    path.write_bytes(b"PK\x03\x04")
    os.truncate(path, 1 << 40)
    return path


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: bomb(path, inflated=1 << 27), "is compressed"),
        (lambda path: bomb(path, members=20_000), "more than 256 arrays"),
        (lambda path: bomb(path, members=70_000), "more than 256 arrays"),  # zip64
        (overlapping, "declares more bytes than it has"),
        (sparse, "more than 67108864 bytes"),
    ],
)
def test_bombs_cost_neither_memory_nor_time(tmp_path, make, message):
    path = make(tmp_path / "p.npz")
    tracemalloc.start()
    began = time.process_time()
    assert_refused(path, message)
    assert time.process_time() - began < 2
    assert tracemalloc.get_traced_memory()[1] < 3 * npz.LIMIT_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_encrypted_files(good, bit):
    data = bytearray(good.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= bit
    good.write_bytes(data)
    assert_refused(good, "is ", "")


def test_two_members_of_one_name(good):
    data = good.read_bytes().replace(b"w.npy", b"v.npy")
    good.write_bytes(data.replace(b"perc_header.npy", b"v.npy".rjust(15, b"v")))
    assert_refused(good, "no policy", "Give a file")
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(good, "w") as archive:
            for _ in range(2):
                archive.writestr(f"{npz.HEADER}.npy", b"")
    assert_refused(good, "two arrays of one name", "Give a file")


def test_no_more_arrays_than_allowed():
    many = {f"a{i}": np.zeros(1, np.uint8) for i in range(npz.MOST_ARRAYS)}
    assert len(npz.members(npz.pack({}, many))) == npz.MOST_ARRAYS + 1
    with pytest.raises(InputError, match="257 arrays; 256 fit"):
        npz.pack({}, {**many, "more": np.zeros(1)})
    with pytest.raises(InputError, match="bytes; 67108864 fit"):
        npz.pack({}, {"a": np.zeros(npz.LIMIT_BYTES, np.uint8)})


NAMED = registry["perc_decay"](tau_s=0.1)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), named=st.booleans())
def test_damage_is_noticed_or_harmless(tmp_path, data, named):
    policy: Policy | OnlinePolicy = NAMED if named else stand_in()
    path = save(tmp_path / "p.npz", policy, about=ABOUT)
    raw = bytearray(path.read_bytes())
    # Directory and end record are a tenth of the file and hold most of the traps.
    spots = st.integers(0, len(raw) - 1) | st.integers(
        raw.index(b"PK\x01\x02"), len(raw) - 1
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(spots)
        kind = data.draw(st.sampled_from(["flip", "set", "drop", "add", "cut"]))
        if kind == "flip":
            raw[at : at + 1] = bytes([raw[at] ^ 1 << data.draw(st.integers(0, 7))])
        elif kind == "set":
            raw[at : at + 1] = bytes([data.draw(st.sampled_from([0, 1, 127, 255]))])
        elif kind == "drop":
            del raw[at : at + data.draw(st.integers(1, 40))]
        elif kind == "add":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        else:
            del raw[max(at, 8) :]
        if len(raw) <= 8:
            break
        spots = st.integers(0, len(raw) - 1)
    path.write_bytes(raw)
    try:
        found = load(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert equal(found, policy)


def test_every_flipped_bit_of_the_directory_is_noticed_or_harmless(good):
    whole = good.read_bytes()
    for at in range(whole.index(b"PK\x01\x02"), len(whole)):
        for bit in range(8):
            raw = bytearray(whole)
            raw[at] ^= 1 << bit
            good.write_bytes(raw)
            try:
                assert equal(load(good), stand_in())
            except InputError:
                pass
