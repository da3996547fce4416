"""`python -m tests.fuzz --seconds 60`: hostile files for every reader, for so long.

What fails is kept in a folder, with the command that repeats it; then the exit code
is 1.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.attempt import MIB, SECONDS, attempt
from tests.fuzz.campaign import Plan, Tally, run
from tests.fuzz.targets import all_targets

SHOWN = 3000  # characters of a failure


def _print(found: list[Tally]) -> None:
    print(f"{'target':30} {'tried':>7} {'refused':>8} {'read':>7}   slowest  most MiB")
    for t in found:
        refused = t.tried - t.read - t.failed
        print(
            f"{t.name:30} {t.tried:7,} {refused:8,} {t.read:7,} {t.slowest_s:8.2f}s"
            f" {t.most_mib:9,.0f}{'   FAILED' if t.failures else ''}"
        )
    tried, failed, read = (
        sum(getattr(t, name) for t in found) for name in ("tried", "failed", "read")
    )
    print(f"{'all':30} {tried:7,} {tried - failed - read:8,} {read:7,}")


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the table")
    parser.add_argument(
        "--limit", type=float, default=SECONDS, help="seconds of a file"
    )
    parser.add_argument("--mib", type=float, default=MIB, help="memory of a file")
    parser.add_argument("--out", type=Path, help="folder for what fails")
    parser.add_argument("--repeat", nargs=2, metavar=("NAME", "FILE"))
    options = parser.parse_args(words)
    names = list(all_targets())
    for name in options.only or ():
        if name not in names:
            parser.error(f"--only {name!r}: there are {', '.join(names)}")
    options.only = options.only or names
    return options


def _repeat(name: str, file: str, options: argparse.Namespace) -> int:
    target = all_targets()[name]
    with tempfile.TemporaryDirectory() as folder:
        outcome = attempt(
            target,
            Path(file).read_bytes(),
            Path(folder),
            seconds=options.limit,
            mib=options.mib,
        )
    print(outcome._replace(said=""), outcome.said, sep="\n")
    return outcome.failed


def main(words: list[str] | None = None) -> int:
    """The exit code: 1 if a file was found that perc does not stand."""
    options = _parsed(words)
    if options.repeat:
        name, file = options.repeat
        return _repeat(name, file, options)
    out = options.out or Path(tempfile.mkdtemp(prefix="perc-fuzz-"))
    out.mkdir(parents=True, exist_ok=True)
    share_s = options.seconds / len(options.only)
    plan = Plan(options.only, options.seed, share_s, options.limit, options.mib)
    found = run(plan, out)
    _print(found)
    for tally in found:
        for said, path in tally.failures.items():
            print(f"\n{tally.name}: {said[-SHOWN:]}")
            print(f"again: python -m tests.fuzz --repeat '{tally.name}' {path}")
    return int(any(tally.failures for tally in found))


if __name__ == "__main__":
    sys.exit(main())
