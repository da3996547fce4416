"""Runs the tests on mutants, in copies of the tree, and keeps what came out."""

import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.mutants.faults import ROOT, Mutant, planted


class Trees:
    """Copies of the tree, one a worker, and a store of compiled programs."""

    def __init__(self, folder: Path, programs: Path, workers: int):
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._stamp = 0
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._stopped = False
        skip = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for i in range(workers):
            shutil.copytree(ROOT, folder / str(i), symlinks=True, ignore=skip)
            self._free.put(folder / str(i))
        self._environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(programs),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "JAX_PLATFORMS": "cpu",
            "PYTHONHASHSEED": "0",
        }

    def try_out(self, mutant: Mutant, limit_s: float) -> tuple[str, str, float]:
        """The outcome of one mutant, the last lines of pytest, and the seconds."""
        tree = self._free.get()
        path = tree / mutant.file
        text = path.read_text()
        start = time.monotonic()
        try:
            path.write_text(planted(mutant, text))
            with self._lock:
                self._stamp += 1  # an own time, lest byte code of another be taken
            os.utime(path, (self._stamp, self._stamp))
            code, said = self._pytest(tree, mutant.tests, limit_s)
        finally:
            path.write_text(text)
            self._free.put(tree)
        outcome = {None: "timed out", 0: "survived"}.get(code, "killed")
        return outcome, said, time.monotonic() - start

    def _pytest(self, tree: Path, tests: tuple[str, ...], limit_s: float):
        plugins = ["no:cacheprovider", "no:xdist", "tests.mutants.profile"]
        words = [word for name in plugins for word in ("-p", name)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", *words, *tests],
            cwd=tree,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        finally:
            self._running.discard(process)
        if self._stopped:
            raise RuntimeError("stopped, so this is no outcome")
        return process.returncode, said[-2000:]

    def stop(self) -> None:
        """Ends what still runs, without an outcome."""
        self._stopped = True
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Results:
    """Outcomes by mutant, in a JSON file that is whole at any moment."""

    def __init__(self, path: Path):
        self._path = path
        self._rows = json.loads(path.read_text()) if path.exists() else {}
        self._lock = threading.Lock()

    @staticmethod
    def _names(mutant: Mutant) -> tuple[str, str]:
        """Of the fault in this module, and of the tests as they are."""
        files = {word.split("::")[0] for word in mutant.tests if ".py" in word}
        tests = [(ROOT / file).read_text() for file in sorted(files)]
        own = [(ROOT / mutant.file).read_text(), *map(str, mutant)]
        return _digest(own), _digest([*own, *tests])

    def of(self, mutant: Mutant) -> tuple[str, float] | None:
        """What is known of it: a kill stays one, whatever was added to the tests."""
        name, now = self._names(mutant)
        row = self._rows.get(name)
        if row and (row["outcome"] != "survived" or row["tests"] == now):
            return row["outcome"], row["seconds"]
        return None

    def note(self, mutant: Mutant, outcome: str, seconds: float) -> None:
        name, now = self._names(mutant)
        row = {"mutant": str(mutant), "outcome": outcome, "tests": now}
        with self._lock:
            self._rows[name] = row | {"seconds": round(seconds, 1)}
            part = self._path.with_name(f".{self._path.name}.part")
            part.write_text(json.dumps(self._rows, indent=1) + "\n")
            part.replace(self._path)


def _digest(words: list[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
