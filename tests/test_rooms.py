"""The rooms: where they lie, and who may import whom."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perc

PERC = Path(perc.__file__).parent
ROOMS = ("kernels", "policies", "train", "bridges")
# What each room may import of perc; "core" is everything in no other room.
MAY_IMPORT = {
    "core": {"core"},
    "kernels": {"kernels"},
    "policies": {"core", "policies"},
    "train": {"core", "policies", "train"},
    "bridges": {"core", *ROOMS},
}
LOOK_UPS = {("compare.py", "resolve"), ("grid.py", "constructors")}
FRONT_DOORS = ("__init__.py", "cli/")  # of the core: these may open every room
HEAVY = ("vllm", "triton", "prometheus_client", "altair", "polars")


def room_of(name: str) -> str | None:
    """The room of an imported module, None for other people's."""
    top, *rest = name.split(".")
    if top != "perc":
        return None
    return rest[0] if rest and rest[0] in ROOMS else "core"


def imports(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Every import in a syntax tree: the function that it stands in, and the name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((function, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            yield from ((function, f"{prefix}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports(node, node.name)
        else:
            yield from imports(node, function)


def modules() -> list[tuple[str, str]]:
    """Every module: its room, and its path below perc/."""
    found = []
    for room in ROOMS:
        found += [(room, path) for path in (PERC / room).rglob("*.py")]
    found += [
        ("core", path)
        for path in PERC.rglob("*.py")
        if path.relative_to(PERC).parts[0] not in ROOMS
    ]
    return sorted((room, path.relative_to(PERC).as_posix()) for room, path in found)


def forbidden(room: str, path: str, source: str) -> list[str]:
    """Imports in a module's source that its room may not make."""
    if room == "core" and path.startswith(FRONT_DOORS):
        return []
    wrong = []
    for function, name in imports(ast.parse(source)):
        if (path, function) in LOOK_UPS and room_of(name) == "policies":
            continue  # names of policies, looked up when asked for
        target = room_of(name)
        if name.startswith(".") or (target and target not in MAY_IMPORT[room]):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_links_to_folders_at_the_root(room):
    root = PERC.parent
    if not (root / "pyproject.toml").is_file():
        pytest.skip("not a checkout: an installed perc holds plain folders")
    assert (PERC / room).is_symlink()
    assert (PERC / room).readlink() == Path("..", room)
    assert (PERC / room).resolve() == (root / room).resolve()
    assert (root / room).is_dir() and not (root / room).is_symlink()


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_have_no_init(room):
    assert not (PERC / room / "__init__.py").exists()


def test_the_walk_finds_the_modules():
    found = modules()
    for known in (("core", "types.py"), ("core", "cli/compare.py")):
        assert known in found
    assert ("policies", "policies/registry.py") in found
    assert len(found) == len(set(found)) >= 40


@pytest.mark.parametrize("room, path", modules())
def test_imports_go_in_the_allowed_direction(room, path):
    source = (PERC / path).read_text(encoding="utf-8")
    assert forbidden(room, path, source) == []


@pytest.mark.parametrize(
    "room, path, source, found",
    [
        ("core", "step.py", "import perc.kernels.gather", ["perc.kernels.gather"]),
        ("core", "step.py", "from perc import policies", ["perc.policies"]),
        ("core", "step.py", "def f():\n from perc.train import x", ["perc.train.x"]),
        ("core", "compare.py", "import perc.policies.lru", ["perc.policies.lru"]),
        ("core", "step.py", "from .policies import lru", [".policies.lru"]),
        ("core", "cli/make.py", "import perc.bridges.vllm_plugin", []),
        ("kernels", "kernels/k.py", "import perc.types", ["perc.types"]),
        ("policies", "policies/p.py", "import perc.types, jax", []),
        ("policies", "policies/p.py", "import perc.train.es", ["perc.train.es"]),
        ("train", "train/t.py", "from perc.policies import lru", []),
        ("train", "train/t.py", "import perc.kernels.k", ["perc.kernels.k"]),
        ("bridges", "bridges/b.py", "import perc.train.t, perc.kernels.k", []),
    ],
)
def test_the_walk_sees_what_is_forbidden(room, path, source, found):
    assert forbidden(room, path, source) == found


def test_importing_perc_loads_nothing_heavy():
    code = f"import sys, perc; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "[]\n", found.stderr


@pytest.mark.parametrize("room, path", modules())
def test_every_module_says_what_it_is(room, path):
    tree = ast.parse((PERC / path).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{path} has no docstring"
