"""Everything of perc that reads a file: what a valid one is, what is done with it."""

import gzip
import lzma
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import zstandard

import perc
from perc.cli import main
from perc.errors import InputError
from tests.fuzz import sealed, seeds, words
from tests.fuzz.mutations import damage
from tests.fuzz.target import Target, command, in_folder, packed, read_trace
from tests.fuzz.written import settings, texts


def _detected() -> list[bytes]:
    names = ("mooncake.jsonl", "sessions.jsonl", "bailian.jsonl", "azure.csv")
    return [*seeds.data(*names), seeds.ragpulse()]


def _traces() -> list[Target]:
    plain = ("mooncake", "blocks", "sessions", "bailian")
    found = [
        Target(
            f"trace {form}",
            partial(seeds.data, f"{form}.jsonl"),
            partial(read_trace, form=form),
        )
        for form in plain
    ]
    packers = {
        "gz": partial(gzip.compress, mtime=0),
        "xz": partial(lzma.compress, preset=0),
        "zst": zstandard.ZstdCompressor().compress,
    }
    return [
        *found,
        Target("trace ragpulse", lambda: [seeds.ragpulse()], read_trace, "input.tar"),
        Target("trace azure", partial(seeds.data, "azure.csv"), read_trace),
        Target("trace detected", _detected, read_trace),
        *(
            Target(f"trace {kind}", _detected, read_trace, pack=packed(pack))
            for kind, pack in packers.items()
        ),
        Target(
            "trace parquet",
            lambda: [seeds.trace_file().read_bytes()],
            read_trace,
            "input.parquet",
            mutate=lambda found, draw: damage(found[0], draw),
        ),
        Target(
            "trace parquet, sealed",  # taken at its word where the checksum is right
            lambda: [sealed.trace_text()],
            lambda path: perc.load(str(path)),
            "input.parquet",
            lambda data, draw: sealed.trace(data),
        ),
    ]


def _use_policy(path: Path) -> None:
    from perc.policies import store

    store.describe(path)
    store.load(path)


def _policies() -> list[Target]:
    kinds = ("registry", "learned")
    return [
        Target(
            "policy",
            lambda: [seeds.policy_file(kind).read_bytes() for kind in kinds],
            _use_policy,
            "input.npz",
            mutate=lambda found, draw: damage(draw.choice(found), draw),
        ),
        Target(
            "policy, sealed",
            lambda: [sealed.policy_text(kind) for kind in kinds],
            _use_policy,
            "input.npz",
            lambda data, draw: sealed.policy(data),
        ),
    ]


def _engines() -> list[Target]:
    from perc.bridges.recording_join import join

    def take(path: Path) -> None:
        from perc.bridges.kv_events import Assembler, parse

        try:
            now_s, found = parse(path.read_bytes())
        except ValueError as error:  # as `perc record` does; it counts them
            raise InputError(str(error)) from None
        assembler = Assembler(2.0)
        for event in found:
            assembler.stored(now_s, event)
        list(assembler.ended(float("inf")))

    def joined(path: Path) -> None:
        folder = path.parent / "recording"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copyfile(path, folder / "abc-000000.parquet")
        join(str(folder))

    def part() -> list[bytes]:
        return [next(seeds.recording().iterdir()).read_bytes()]

    return [
        Target("kv events", seeds.events, take, "input.msgpack"),
        Target("recording", part, joined, "part.parquet"),
        Target(
            "recording, sealed",
            lambda: [sealed.part_text()],
            joined,
            "part.parquet",
            lambda data, draw: sealed.part(data),
        ),
    ]


def _report(folder: Path) -> None:
    main(["report", str(folder), "--out", str(folder.parent / "page.html")])


def _changes(folder: Path) -> None:
    main(["compare", str(seeds.run_folder("compare")), str(folder)])


def _resume(folder: Path) -> None:
    main(["sweep", f"@{seeds.grid_file()}", "--out", str(folder)])


def _runs() -> list[Target]:
    def file(command: str, name: str) -> Callable[[], list[bytes]]:
        return lambda: [(seeds.run_folder(command) / name).read_bytes()]

    compared = partial(seeds.run_folder, "compare")
    planned = partial(seeds.run_folder, "plan")
    found = [
        (compared, "compare", "run.json", _report),
        (compared, "compare", "results.parquet", _report),
        (compared, "compare", "groups.parquet", _report),
        (planned, "plan", "plan.json", _report),
        (planned, "plan", "plan.parquet", _report),
    ]
    return [
        *(
            Target(
                f"report {of} {name}", file(of, name), in_folder(at, name, use), name
            )
            for at, of, name, use in found
        ),
        Target(
            "compare runs",
            file("compare", "run.json"),
            in_folder(compared, "run.json", _changes),
            "run.json",
        ),
        Target(
            "sweep.json",
            lambda: [(seeds.sweep_folder() / "sweep.json").read_bytes()],
            in_folder(seeds.sweep_folder, "sweep.json", _resume),
            "sweep.json",
        ),
        Target(
            "sweep part",
            lambda: [
                p.read_bytes() for p in (seeds.sweep_folder() / "parts").iterdir()
            ],
            in_folder(seeds.sweep_folder, "parts/x.parquet", _resume),
            "x.parquet",
        ),
        Target("show-job", lambda: [seeds.job()], command("show-job"), "input.json"),
        Target(
            "lab summarize",
            lambda: [seeds.measured()],
            lambda path: main(["lab", "summarize", str(path), f"{path}.out"]),
        ),
    ]


def all_targets() -> dict[str, Target]:
    """By name."""
    line = Target(
        "command line", words.valid, words.run, "words.json", mutate=words.mutate
    )
    found = (_traces(), _policies(), settings(), texts(), _engines(), _runs(), [line])
    return {target.name: target for group in found for target in group}
