"""Policies as files: what they were made of, and how they were trained.

A file is an `.npz` of numbers with a JSON header (`perc.npz`), never a pickle. It says
how to build the policy, not what code to run: a kind of `KINDS`, its settings, and its
arrays. `docs/formats.md` has the layout.

>>> import os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "mine.npz")
>>> _ = save_named(path, "perc_decay", {"tau_s": 60.0}, about={"trace": "conversation"})
>>> load(path).name, describe(path).settings["parameters"]
('perc_decay', {'tau_s': 60.0})
"""

import hashlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from perc import npz
from perc.errors import InputError
from perc.files import POLICY_SUFFIX, names_policy_file, write_atomically
from perc.npz import FETCH, GIVE, short, words
from perc.policies import learned_files
from perc.policies.registry import registry
from perc.types import AnyPolicy, Features

FORMAT = "perc policy"
VERSION = 1
Arrays = dict[str, np.ndarray]


class Kind(NamedTuple):
    """One way to build a policy from plain data.

    `build(*take_apart(policy))` must equal the policy but for its name. Settings are
    JSON: numbers, texts, lists, tables. They come from a file, so `build` has to check
    them; it says what is wrong by an `InputError`.
    """

    build: Callable[[dict[str, Any], Arrays], AnyPolicy]
    # None where the policy is of another kind.
    take_apart: Callable[[AnyPolicy], tuple[dict[str, Any], Arrays] | None]


@dataclass(frozen=True)
class Facts:
    """What an array of a file must be."""

    dtype: str  # as numpy writes it, little-endian: "<f4"
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """What a policy file says of itself; `describe` reads it."""

    perc: str  # version that wrote it
    kind: str  # of KINDS
    settings: dict[str, Any]
    uses: tuple[str, ...]  # names of the features that the policy reads
    arrays: dict[str, Facts]
    about: dict[str, Any]  # how it was trained: free
    sha256: str  # of all the rest and the arrays

    def as_dict(self) -> dict[str, Any]:
        """As it stands in the file."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def save(
    path: str | os.PathLike[str],
    policy: AnyPolicy,
    *,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a policy; the file appears under its name when it is whole.

    Its name is not stored: in tables it is called after the file. A policy of the
    registry can be saved if its constructor's arguments stand in its parameters; where
    they do not, as in the flags of gdsf, use `save_named`.

    Args:
        path: ends in .npz.
        policy: of one of `KINDS`.
        about: how it was trained, plain JSON: method, seed, trace, its
            `perc.traces.hashing.hash_of`, requests, split, held-out scores, ...

    Raises:
        InputError: if no kind can store the policy, or the file cannot be written.
    """
    for name, kind in KINDS.items():
        parts = kind.take_apart(policy)
        if parts is None:
            continue
        settings, arrays = npz.plain_json(parts[0]), _plain(parts[1])
        if _equal(kind.build(settings, arrays), policy):
            return _write(path, name, settings, arrays, policy.uses, about)
    raise InputError(
        f"policy {policy.name!r} cannot be stored: no kind of {', '.join(KINDS)} "
        "builds it again. For one of the registry give perc.policies.store.save_named "
        "its name and parameters."
    )


def save_named(
    path: str | os.PathLike[str],
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a policy of the registry by its constructor's name and arguments.

    Raises:
        InputError: for a name or parameter that there is not, or as `save`.
    """
    settings = {"name": name, "parameters": dict(parameters or {})}
    policy = _build_named(npz.plain_json(settings), {})
    return _write(path, "registry", settings, {}, policy.uses, about)


def load(path: str | os.PathLike[str]) -> AnyPolicy:
    """Reads a policy. The file may come from anybody: it is checked, nothing is run.

    Raises:
        InputError: if the file is not whole, not a policy of perc's, of a newer perc,
            or says what no policy can be.
    """
    try:
        return _built(*_parsed(npz.read_bytes(path)))
    except InputError as error:
        raise _named(path, error) from None


def describe(path: str | os.PathLike[str]) -> Header:
    """Reads what a policy file says of itself, and checks that it is whole.

    Raises:
        InputError: as `load`, but for what only building the policy shows.
    """
    try:
        return _parsed(npz.read_bytes(path))[0]
    except InputError as error:
        raise _named(path, error) from None


def with_files(
    policies: Iterable[str | os.PathLike[str] | AnyPolicy],
) -> list[AnyPolicy]:
    """Loads those that are paths, and calls each after its file.

    A policy gets the file's name without folder and .npz, unless another one or a
    constructor has that name: then it is the path.

    Raises:
        InputError: as `load`, and if there is none.
    """
    given = list(policies)
    if not given:
        raise InputError("no policy given; for example --policies lru,perc,belady")
    names = Counter(
        Path(p).stem if isinstance(p, str | os.PathLike) else p.name for p in given
    )
    return [
        replace(load(p), name=_name(os.fspath(p), names))
        if isinstance(p, str | os.PathLike)
        else p
        for p in given
    ]


def _name(path: str, names: Counter[str]) -> str:
    stem = Path(path).stem
    return path if names[stem] > 1 or stem in registry else stem


def _named(path: str | os.PathLike[str], error: InputError) -> InputError:
    shown = os.fspath(path).encode(errors="backslashreplace").decode()
    return InputError(f"{shown}: {error}")


def _write(
    path: str | os.PathLike[str],
    kind: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, Any],
    uses: tuple[str, ...],
    about: Mapping[str, Any] | None,
) -> Path:
    target = Path(path)
    if not names_policy_file(os.fspath(target)):
        raise InputError(f"{target}: a policy file ends in {POLICY_SUFFIX}.")
    try:
        plain = _plain(arrays)
        table = npz.plain_json(
            {
                "format": FORMAT,
                "version": VERSION,
                "perc": _perc_version(),
                "kind": kind,
                "settings": settings,
                "uses": uses,
                "arrays": {
                    name: {"dtype": a.dtype.str, "shape": a.shape}
                    for name, a in plain.items()
                },
                "about": dict(about or {}),
            }
        )
        data = npz.pack({**table, "sha256": _checksum(table, plain)}, plain)
        _parsed(data)  # what cannot be read again is not written
    except InputError as error:
        raise _named(target, error) from None
    try:
        if target.is_dir():
            raise InputError(f"{target}: is a folder; choose another name.")
        return write_atomically(target, lambda file: file.write_bytes(data))
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); choose another folder."
        ) from None


def _plain(arrays: Mapping[str, Any]) -> Arrays:
    return {name: npz.plain_array(name, arrays[name]) for name in sorted(arrays)}


def _perc_version() -> str:
    try:
        return version("perc-kv")
    except PackageNotFoundError:  # from a checkout that is not installed
        return "unknown"


def _checksum(table: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Of all but itself; dtypes and shapes stand in the table."""
    digest = hashlib.sha256(
        npz.canonical({k: v for k, v in table.items() if k != "sha256"})
    )
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _parsed(data: bytes) -> tuple[Header, Arrays]:
    """Header and arrays of a file, all that can be checked without building."""
    table, members = npz.unpack(data)
    header = _header(table)
    for name in members.keys() ^ header.arrays.keys():
        what = "lacks" if name in header.arrays else "has one too many,"
        raise InputError(f"{what} array {short(name)}. {FETCH}")
    arrays = {name: npz.to_array(name, raw) for name, raw in members.items()}
    for name, wanted in header.arrays.items():
        array = arrays[name]
        found = Facts(array.dtype.newbyteorder("<").str, array.shape)
        if found != wanted:
            raise InputError(
                f"array {short(name)} is {found.dtype} {found.shape}, its header says "
                f"{short(wanted.dtype)} {short(wanted.shape)}. {FETCH}"
            )
    if _checksum(table, arrays) != header.sha256:
        raise InputError(f"is not as it was written: its sha256 is another. {FETCH}")
    return header, arrays


def _header(table: dict[str, Any]) -> Header:
    if table.get("format") != FORMAT:
        raise InputError(
            f"is no policy: its format is {short(table.get('format'))}. {GIVE}"
        )
    found = table.get("version")
    if type(found) is not int or found < 1:
        raise InputError(f"has version {short(found)}, no whole number. {FETCH}")
    if found > VERSION:
        raise InputError(
            f"has format version {found}, this perc reads {VERSION}. Update perc."
        )
    values = {k: v for k, v in table.items() if k not in ("format", "version")}
    kinds = {field.name: _JSON.get(field.name, str) for field in fields(Header)}
    for name in values.keys() ^ kinds.keys():
        what = "lacks" if name in kinds else "has one too many,"
        raise InputError(f"{what} header field {short(name)}. {FETCH}")
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise InputError(
                f"header field {name} is {short(values[name])}, must be a "
                f"{kind.__name__}. {FETCH}"
            )
    values["uses"] = tuple(map(_feature, values["uses"]))
    values["arrays"] = {k: _facts(k, v) for k, v in values["arrays"].items()}
    return Header(**values)


_JSON = {"settings": dict, "uses": list, "arrays": dict, "about": dict}
_FEATURES = frozenset(field.name for field in fields(Features))


def _feature(name: Any) -> str:
    if not isinstance(name, str) or name not in _FEATURES:
        raise InputError(
            f"uses a feature {short(name)} that this perc does not have. Update perc."
        )
    return name


def _facts(name: str, given: Any) -> Facts:
    if isinstance(given, dict) and given.keys() == {"dtype", "shape"}:
        dtype, shape = given["dtype"], given["shape"]
        if isinstance(dtype, str) and isinstance(shape, list):
            if all(type(size) is int for size in shape):
                return Facts(dtype, tuple(shape))
    raise InputError(f"header of array {short(name)} is {short(given)}. {FETCH}")


def _built(header: Header, arrays: Arrays) -> AnyPolicy:
    if header.kind not in KINDS:
        raise InputError(
            f"is of kind {short(header.kind)}; this perc has {', '.join(KINDS)}. "
            "Update perc."
        )
    try:
        return KINDS[header.kind].build(header.settings, arrays)
    except InputError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"makes no policy of kind {header.kind!r} ({type(error).__name__}: "
            f"{words(error)}). {FETCH}"
        ) from error


def _equal(one: AnyPolicy, other: AnyPolicy) -> bool:
    """Whether two policies are the same but for their names."""
    one = replace(one, name=other.name)
    (a, structure), (b, wanted) = map(jax.tree.flatten, (one, other))
    leaves = zip(map(np.asarray, a), map(np.asarray, b), strict=False)
    return structure == wanted and all(
        (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
        for x, y in leaves
    )


def _build_named(settings: dict[str, Any], arrays: Arrays) -> AnyPolicy:
    """The kind "registry": `{"name": "perc_decay", "parameters": {"tau_s": 60.0}}`."""
    if settings.keys() != {"name", "parameters"} or arrays:
        raise InputError(f"a policy of the registry has a name and parameters. {FETCH}")
    name, given = settings["name"], settings["parameters"]
    if not isinstance(name, str) or not isinstance(given, dict):
        raise InputError(f"has the name {short(name)} and {short(given)}. {FETCH}")
    if name not in registry:
        raise InputError(
            f"no policy is called {short(name)}. There are: {', '.join(registry)}. "
            "Update perc."
        )
    allowed = inspect.signature(registry[name]).parameters
    for key, value in given.items():
        if key not in allowed:
            raise InputError(
                f"policy {name!r} has no parameter {short(key)}. It has: "
                f"{', '.join(allowed) or 'none'}."
            )
        kind = allowed[key].annotation
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(
                f"policy {name!r}: {key} is {short(value)}, must be of type "
                f"{kind.__name__}."
            )
    return registry[name](**given)


def _take_named(policy: AnyPolicy) -> tuple[dict[str, Any], Arrays] | None:
    """By the parameters that are named as the constructor's arguments."""
    name, _, _ = policy.name.partition(":")  # the command line adds parameters
    if name not in registry:
        return None
    params = policy.params if isinstance(policy.params, dict) else {}
    allowed = inspect.signature(registry[name]).parameters
    found = {
        key: parameter.annotation(float(str(params[key])))  # shortest: 0.1 of float32
        for key, parameter in allowed.items()
        if parameter.annotation in (int, float) and not np.ndim(params.get(key, ()))
    }
    return {"name": name, "parameters": found}, {}


KINDS: dict[str, Kind] = {
    "registry": Kind(_build_named, _take_named),
    "learned": Kind(learned_files.build, learned_files.take_apart),
}
