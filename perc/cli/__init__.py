"""The command `perc`. One module a command; each imports what it needs when it runs."""

import os
import sys
import warnings
from importlib.metadata import version

from perc.errors import InputError, TraceWarning
from perc.printable import printable

FAILED, INPUT_ERROR, INTERRUPTED = 1, 2, 130
NATIVE_LOOPS = "xla_cpu_small_while_loop_byte_threshold=1000000"


def main(arguments: list[str] | None = None) -> None:
    """Runs one command and exits: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    words = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))
    _allow_native_loops()
    warnings.simplefilter("always", TraceWarning)
    warnings.showwarning = _show_note
    try:
        _dispatch(words)
        sys.stdout.flush()
    except InputError as error:
        print(printable(f"perc: {error}", keep="\n"), file=sys.stderr)
        sys.exit(INPUT_ERROR)
    except MemoryError:
        print("perc: not enough memory; use a part of the trace", file=sys.stderr)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        print("perc: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a full disk, say
        print(f"perc: {error}", file=sys.stderr)
        sys.exit(FAILED)


def _allow_native_loops() -> None:
    """Lets XLA of jax 0.10 compile the outer loop to native code too: 3 times as fast.

    No result depends on it, and later versions do it by themselves. XLA reads the
    variable when JAX first computes, which is after this.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        flags = f"{flags} --xla_backend_extra_options={NATIVE_LOOPS}"
        os.environ["XLA_FLAGS"] = flags.strip()


def _dispatch(words: list[str]) -> None:
    import tyro

    if words == ["--version"]:
        print(f"perc {version('perc-kv')}")
        return
    from perc.cli.advise import advise
    from perc.cli.arguments import expand_files
    from perc.cli.bench import bench
    from perc.cli.compare import compare
    from perc.cli.convert import convert
    from perc.cli.cost import cost
    from perc.cli.curve import curve
    from perc.cli.explain import explain
    from perc.cli.hardware import hardware
    from perc.cli.inspect import inspect_trace
    from perc.cli.lab import lab
    from perc.cli.list_policies import list_policies
    from perc.cli.make import commands as make_commands
    from perc.cli.plan import plan
    from perc.cli.profile import profile
    from perc.cli.record import record
    from perc.cli.report import report
    from perc.cli.serve import serve
    from perc.cli.simulate import simulate
    from perc.cli.sweep import sweep
    from perc.cli.trace_from_prompts import trace_from_prompts
    from perc.cli.train import train
    from perc.cli.tune import tune
    from perc.cli.vllm_benchmark import (
        compare_models,
        render_job,
        show_job,
        vllm_benchmark,
    )

    if words[:1] != ["sweep"]:  # whose @grid.toml has tables, not flags
        words = expand_files(words)
    for word in words:
        if "\0" in word:  # a file of flags can say it; no path can hold it
            raise InputError(f"{word!r} holds the character NUL; leave it out.")
    if words[:1] == ["make"]:
        tyro.extras.subcommand_cli_from_dict(
            make_commands,
            prog="perc make",
            description="Make synthetic traffic. `perc make NAME --help` shows its "
            "parameters.",
            args=words[1:],
        )
        return
    tyro.extras.subcommand_cli_from_dict(
        {
            "bench": bench,
            "advise": advise,
            "compare": compare,
            "cost": cost,
            "curve": curve,
            "explain": explain,
            "hardware": hardware,
            "inspect": inspect_trace,
            "convert": convert,
            "lab": lab,
            "make": _make,
            "plan": plan,
            "policies": list_policies,
            "profile": profile,
            "record": record,
            "report": report,
            "serve": serve,
            "simulate": simulate,
            "sweep": sweep,
            "trace-from-prompts": trace_from_prompts,
            "train": train,
            "tune": tune,
            "vllm-benchmark": vllm_benchmark,
            "compare-models": compare_models,
            "render-job": render_job,
            "show-job": show_job,
        },
        prog="perc",
        description="Decides what an LLM server keeps in its KV cache. Start with "
        "`perc compare`; @run.toml anywhere on the line stands for the flags in it.",
        args=words,
    )


def _make() -> None:
    """Make synthetic traffic: chat, agent, rag, zipf or scan."""


def _show_note(message, category, filename, lineno, file=None, line=None) -> None:
    prefix = "" if category is TraceWarning else f"{category.__name__}: "
    print(printable(f"note: {prefix}{message}", keep="\n"), file=sys.stderr)
