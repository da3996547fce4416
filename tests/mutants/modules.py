"""Which tests hold which module, and the faults that they must find in any case."""

import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from perc.policies.registry import registry
from tests.mutants.faults import ROOT, Mutant, at_text

LIST = Path(__file__).with_name("named.toml")
ORDERS = ["test_live", "test_live_history", "test_equality"]  # the slowest last
DOC = "tests/test_docs.py::test_examples_in_docstrings[perc.{}]"
CORE = {
    "perc/step.py": ["tests/test_step.py", "tests/test_replay.py"],
    "perc/replay.py": ["tests/test_replay.py"],
    "perc/online.py": ["tests/test_online.py", "tests/test_online_rescored.py"],
    "bridges/victims.py": ["tests/bridges/test_victims.py"],
    "bridges/orders.py": [f"tests/bridges/{name}.py" for name in ORDERS],
}
SELECT = {  # its tests of the same name, and these
    "bounds": ["greedy"],
    "items": ["greedy"],
    "closed_exact": ["closed"],
    "forest": ["closed"],
}
POLICIES = {  # tests of its own, by file; conformity and oracles go by its name
    "arc": ["test_arc_vllm"],
    "filo": ["test_diagnostics"],
    "gds": ["test_greedy_dual"],
    "gdsf": ["test_greedy_dual"],
    "hazard": ["test_timed"],
    "landlord": ["test_greedy_dual"],
    "learned_files": ["test_store", "test_learned"],
    "learned_key": ["test_learned"],
    "mru": ["test_diagnostics"],
    "shortest": ["test_diagnostics"],
    "ttl": ["test_timed"],
    "workload_aware": ["test_timed"],
}
APART = ("registry", "store", "learned", "learned_files", "learned_key")


def modules() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules, and the arguments of pytest that test them."""
    for file, tests in CORE.items():
        yield file, tuple(tests)
    if find_spec("vllm"):
        names = ("invariants", "equality", "connector")
        tests = (f"tests/vllm/test_{name}.py" for name in names)
        yield "bridges/vllm_queue.py", tuple(tests)
    for path in sorted((ROOT / "perc" / "select").glob("[!_]*.py")):
        names = [path.stem, *SELECT.get(path.stem, [])]
        files = [f"tests/select/test_{name}.py" for name in names]
        files = [file for file in files if (ROOT / file).exists()]
        yield f"perc/select/{path.name}", (*files, DOC.format(f"select.{path.stem}"))
    for path in sorted((ROOT / "policies").glob("[!_]*.py")):
        yield f"policies/{path.name}", _of_policy(path.stem)


def _of_policy(name: str) -> tuple[str, ...]:
    own = POLICIES.get(name, [f"test_{name}"])
    files = [f"tests/policies/{stem}.py" for stem in own]
    files = [file for file in files if (ROOT / file).exists()]
    if name in APART and files:
        return tuple(files)
    shared = ["policies/test_conformity", "policies/test_defaults", "test_online"]
    files += [f"tests/{stem}.py" for stem in [*shared, "test_golden"]]
    # pytest matches parts of names: of files too, and of cases from their beginning.
    made = [f"[{policy}" for policy in registry if _made_in(name, policy)]
    words = [*(made or [name]), *own, "test_who", "test_unknown"]
    return (*files, "-k", " or ".join(words))


def _made_in(name: str, policy: str) -> bool:
    """Whether the file of this name makes the policy."""
    return registry[policy].__module__ == f"perc.policies.{name}"


def named() -> list[Mutant]:
    """The fixed list of named.toml.

    Raises:
        ValueError: if it is out of date: a place is not there, or more than once.
    """
    listed = tomllib.loads(LIST.read_text())
    tests = {file: tuple(tests) for file, tests in modules()} | listed["tests"]
    return [
        at_text(one["file"], one["old"], one["new"], tuple(tests[one["file"]]))
        for one in listed["faults"]
    ]
