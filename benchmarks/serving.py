"""How much CPU does it take to serve a trace in simulated time, beside Dynamo's replay?

    python benchmarks/serving.py TRACE.jsonl [--peer-python PYTHON]

One server, every request to its last token, LRU unless `--policies` says otherwise.
perc's time holds scoring, ranking, laying out and the run, not the compilation, which
is printed apart. The peer is the
offline replay of `ai-dynamo-runtime`, in Rust, through its own Python if it lives in
another environment, with reading the file in its time. Its costs of a step are its
own, and so are its latencies: what is compared is the CPU for the same requests.

Bar of the project: 20,000 requests per CPU second on Mooncake's conversation trace.
"""

import functools
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = "xla_cpu_small_while_loop_byte_threshold=1000000"  # as `perc` sets it
os.environ.setdefault("XLA_FLAGS", f"--xla_backend_extra_options={NATIVE}")

import common  # noqa: E402
import tyro  # noqa: E402

import perc  # noqa: E402
from perc.cli.policies import parse_policies  # noqa: E402
from perc.cli.serving_flags import MACHINE, Tiers  # noqa: E402
from perc.cli.serving_setup import offload_of  # noqa: E402
from perc.hardware import accelerator  # noqa: E402
from perc.model_shapes import model  # noqa: E402
from perc.roofline import roofline  # noqa: E402
from perc.serving.arrivals import scaled  # noqa: E402
from perc.serving.laws import check_laws  # noqa: E402
from perc.serving.settings import Server  # noqa: E402
from perc.serving.simulate import simulate  # noqa: E402

PEER = """
import json, sys, time
from dynamo._core import run_mocker_trace_replay
for _ in range(int(sys.argv[3])):
    began = time.process_time()
    found = run_mocker_trace_replay(
        [sys.argv[1]], trace_block_size=512, arrival_speedup_ratio=float(sys.argv[2])
    )
    taken = time.process_time() - began
    print(json.dumps([taken, found.summary["completed_requests"]]))
"""


def main(
    trace: Path,
    /,
    loads: tuple[float, ...] = (0.1, 0.2, 0.3),
    blocks: int = 2000,
    policies: str = "lru",
    tiers: tuple[str, ...] = (),
    repeats: int = 5,
    peer_python: str = sys.executable,
) -> None:
    """Measures.

    Args:
        trace: in Mooncake's format.
        loads: how many times as fast as recorded.
        blocks: capacity of the KV cache.
        policies: comma list, as `perc simulate` takes it.
        tiers: serve with these below the GPU too, such as cpu:1TiB:pcie5: a row more.
        repeats: of each measurement.
        peer_python: an interpreter that can import `dynamo._core`.
    """
    traffic = perc.load(trace)
    common.print_conditions(traffic, seed=0)
    cost = roofline(model(MACHINE.model), accelerator(MACHINE.gpu))
    servers = {"": Server(blocks)}
    if tiers:
        below = offload_of(traffic, MACHINE, Tiers(tiers))
        servers[f", {' '.join(tiers)}"] = Server(blocks, offload=below)
    table = common.table(
        "CPU of one configuration, min / median", "", "CPU s", "requests per CPU s"
    )
    for load in loads:
        faster = scaled(traffic, load)
        for policy, beside in itertools.product(parse_policies(policies), servers):
            name = f"{policy.name}{beside}"
            serve = functools.partial(simulate, faster, policy, servers[beside], cost)
            first = common.repeat(serve, 1)[0]
            seconds = common.repeat(serve, repeats)
            found = serve()
            check_laws(found)
            completed = int((found.status == 1).sum())
            table.add_row(
                f"perc, {name}, load {load:g}",
                common.min_median(seconds, digits=3),
                f"{completed / min(seconds):,.0f}",
            )
            common.say(
                f"{name} at load {load:g}: completed {completed:,} in "
                f"{found.totals['steps']:,} steps, {found.totals['events']:,} passes; "
                f"first call {first:.1f} CPU s"
            )
        theirs = _peer(trace, load, repeats, peer_python)
        if theirs:
            seconds, completed = theirs
            table.add_row(
                f"ai-dynamo-runtime, load {load:g}",
                common.min_median(seconds, digits=3),
                f"{completed / min(seconds):,.0f}",
            )
    common.console.print(table)


def _peer(trace: Path, load: float, repeats: int, python: str):
    """CPU seconds of each run and the requests completed; None without the peer."""
    with tempfile.TemporaryDirectory() as folder:
        plain = trace
        if trace.suffix == ".gz":
            plain = Path(folder) / "trace.jsonl"
            plain.write_bytes(gzip.decompress(trace.read_bytes()))
        words = [python, "-c", PEER, str(plain), str(load), str(repeats)]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        common.say(
            f"skipped   ai-dynamo-runtime ({why}): pip install ai-dynamo-runtime"
        )
        return None
    lines = done.stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("[")]
    return [row[0] for row in rows], rows[-1][1]


if __name__ == "__main__":
    tyro.cli(main)
