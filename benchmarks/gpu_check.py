"""Are the kernels right on this GPU, and how fast beside XLA and beside a plain copy?

    python benchmarks/gpu_check.py --out kernels.json      # three to five minutes
    TRITON_INTERPRET=1 python benchmarks/gpu_check.py --dry    # no GPU: tiny, untimed

Needs JAX, jax-triton and this checkout, nothing else of perc: for a GPU machine without
network, put jax-triton's wheel on PYTHONPATH. Results first: kernels must equal the
references on the CPU bit for bit (scores: up to 2e-2). Then a copy and a triad of
streams, beside the card's figure. Then times, medians of five batches of queued calls,
with pages in random order and more of them than caches hold; shares are of a plain copy
in the same run, for the bytes that must move. Then the link to host memory, alone and
while the GPU computes. Exits with 1 if a result was wrong. Nothing about the card is
changed.

One idea a file: gpu_results, gpu_memory, gpu_kernels, gpu_link.
"""

import argparse
import json
import sys
from pathlib import Path

import gpu_common
import gpu_kernels
import gpu_link
import gpu_memory
import gpu_results
import jax


def main() -> None:
    """Checks, times, writes; exits with 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description="Checks perc's kernels on a GPU.")
    parser.add_argument("--dry", action="store_true", help="tiny, in the interpreter")
    parser.add_argument("--out", type=Path, help="a JSON file for all of it")
    given = parser.parse_args()
    if not given.dry and jax.default_backend() != "gpu":
        parser.error("JAX sees no GPU here; --dry runs the same in the interpreter")
    size = gpu_common.DRY if given.dry else gpu_common.REAL
    backend = "interpret" if given.dry else "triton"
    report = gpu_common.conditions(given.dry)
    print(json.dumps(report))
    check = gpu_results.Check(backend)
    gpu_results.check_results(check, size)
    report["checks"] = check.results
    bad = sum(not result["ok"] for result in check.results)
    print(f"{len(check.results) - bad} of {len(check.results)} results are right\n")
    report["memory"] = gpu_memory.time_memory(size)
    report["times"] = gpu_kernels.time_all(backend, size)
    report["staging"] = gpu_link.time_staging(backend, size)
    report["overlap"] = gpu_link.time_overlap(size)
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    failed = [row["name"] for row in report["times"] if "error" in row]
    failed += [row for row in report["memory"] + report["overlap"] if not row["equal"]]
    sys.exit(1 if bad or failed else 0)


if __name__ == "__main__":
    main()
