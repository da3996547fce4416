"""One file, used once: read, refused in words, or a failure; its time and memory."""

import contextlib
import io
import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perc.errors import InputError, TraceWarning
from tests.fuzz.target import Target

SECONDS, MIB = 60, 1024  # that one small file may take
LONGEST_MESSAGE = 20_000  # characters; some errors quote a line, none quotes a file


class Outcome(NamedTuple):
    """What became of a file."""

    failed: bool
    read: bool  # else refused, if it has not failed
    said: str  # to the person; of a failure what is wrong
    seconds: float
    mib: float  # most memory above what there was before


class TooLong(BaseException):
    """Not to be caught as what a file may cause."""


def attempt(
    target: Target,
    data: bytes,
    folder: Path,
    *,
    seconds: float = SECONDS,
    mib: float = MIB,
) -> Outcome:
    """Writes the bytes into a folder and does with the file what a person would."""
    path = folder / target.file
    path.write_bytes(data)
    before, start = _forget_peak(), time.perf_counter()
    failed, read, said = True, False, ""
    try:
        with _at_most(seconds), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", TraceWarning)
            read, said = _use(target, path)
            failed = False
    except TooLong:
        said = f"took more than {seconds:g} s"
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of polars is no Exception
        said = traceback.format_exc(limit=-12)
    took, peak = time.perf_counter() - start, max(0.0, _peak_mib() - before)
    if not failed and peak > mib:
        failed, said = True, f"took {peak:,.0f} MiB, more than {mib:g}"
    elif not failed and not read:
        wrong = _bad_words(said)
        failed, said = bool(wrong), f"{wrong}: {said[:2000]}" if wrong else said
    return Outcome(failed, read, said, took, peak)


def _use(target: Target, path: Path) -> tuple[bool, str]:
    """Whether the file was read, and what was said."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            target.use(path)
    except InputError as error:
        return False, str(error)
    except SystemExit as end:
        said = err.getvalue() or out.getvalue()
        if "Traceback" in said or end.code not in (0, 1, 2, None):
            raise AssertionError(f"exit code {end.code}: {said}") from None
        return not end.code, said
    return True, out.getvalue()


def _bad_words(said: str) -> str:
    """What is wrong with a refusal as such; nothing of most."""
    if not said.strip():
        return "refused without a word"
    if len(said) > LONGEST_MESSAGE:
        return f"refused in {len(said):,} characters"
    if "not enough memory" in said:
        return "ran out of memory"
    return ""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _forget_peak() -> float:
    """Lets the kernel count the peak from now on; what a peak is above, MiB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not here: at least the peak so far is not this file's
        return _peak_mib()
    return _status("VmRSS:")


def _peak_mib() -> float:
    return _status("VmHWM:")


def _status(name: str) -> float:
    """A size of this process, MiB; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
    return 0.0
