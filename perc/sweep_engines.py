"""Who does the work of a sweep: this process, processes beside it, or a Ray cluster.

An engine gets a trace and its configurations and gives the rows of one after the other,
in any order. All run the same function on the same arrays, so the rows are equal bit
for bit on machines of one kind.
"""

import os
import pickle
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from perc.errors import InputError
from perc.grid import Configuration
from perc.sweep_unit import Job, Row, run_units

Engine = Callable[[Job, Sequence[Configuration]], Iterator[list[Row]]]
ENGINES = ("local", "processes", "ray")
LARGEST_CHUNK = 8  # configurations that a worker gets at a time
CHUNK_ACCESSES = 4_000_000  # and no more than this many accesses


@contextmanager
def engine(name: str, workers: int | None) -> Iterator[Engine]:
    """Starts an engine, and ends what it started.

    Raises:
        InputError: for an unknown name, a number of workers that it cannot have, or
            Ray where it is not installed.
    """
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}; there are {', '.join(ENGINES)}.")
    if workers is not None and (workers < 1 or name == "local"):
        raise InputError(
            f"{workers} workers for engine {name}; give 1 or more with --engine "
            "processes or ray. The local engine is this process."
        )
    if name == "local":
        yield run_units
    elif name == "processes":
        with _processes(workers or os.cpu_count() or 1) as started:
            yield started
    else:
        with _ray(workers) as started:
            yield started


def _chunks(job: Job, units: Sequence[Configuration]) -> Iterator[list[Configuration]]:
    size = CHUNK_ACCESSES // max(job.trace.n_accesses, 1)
    size = min(max(size, 1), LARGEST_CHUNK)
    for i in range(0, len(units), size):
        yield list(units[i : i + size])


def _run(job: Job, units: Sequence[Configuration]) -> list[list[Row]]:
    return list(run_units(job, units))


@contextmanager
def _processes(workers: int) -> Iterator[Engine]:
    # Not forked: JAX has threads. Each process reads the trace once, from a file.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker)
    try:
        with tempfile.TemporaryDirectory(prefix="perc-sweep-") as folder:
            yield lambda job, units: _run_in_pool(pool, Path(folder), job, units)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_in_pool(
    pool: ProcessPoolExecutor,
    folder: Path,
    job: Job,
    units: Sequence[Configuration],
) -> Iterator[list[Row]]:
    path = folder / job.sha256
    path.write_bytes(pickle.dumps(job))
    pending: set[Future] = {
        pool.submit(_run_file, str(path), chunk) for chunk in _chunks(job, units)
    }
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield from future.result()
    path.unlink()


def _begin_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends when the parent does, even if killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _run_file(path: str, units: Sequence[Configuration]) -> list[list[Row]]:
    return _run(_read_job(path), units)


@lru_cache(maxsize=1)
def _read_job(path: str) -> Job:
    return pickle.loads(Path(path).read_bytes())


@contextmanager
def _ray(workers: int | None) -> Iterator[Engine]:
    """The cluster that RAY_ADDRESS names, or one of this machine."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'perc-kv[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        address = os.environ.get("RAY_ADDRESS", "local")
        new = {"num_cpus": workers, "include_dashboard": False}
        with warnings.catch_warnings():
            # Ray starts its servers with a fork, which runs them at once: no deadlock.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called")
            options = new if address == "local" else {}
            ray.init(address, log_to_driver=False, **options)
    try:
        task = ray.remote(_run)
        yield lambda job, units: _run_in_ray(ray, task, workers, job, units)
    finally:
        if ours:
            ray.shutdown()


def _run_in_ray(
    ray: Any,
    task: Any,
    workers: int | None,
    job: Job,
    units: Sequence[Configuration],
) -> Iterator[list[Row]]:
    shared = ray.put(job)  # once a machine; its arrays are read where they lie
    chunks = _chunks(job, units)
    most = workers or int(ray.cluster_resources().get("CPU", 1))
    pending = []
    for chunk in chunks:
        pending.append(task.remote(shared, chunk))
        if len(pending) >= 2 * most:  # enough to keep all busy, not all at once
            done, pending = ray.wait(pending)
            yield from (rows for found in ray.get(done) for rows in found)
    while pending:
        done, pending = ray.wait(pending)
        yield from (rows for found in ray.get(done) for rows in found)
