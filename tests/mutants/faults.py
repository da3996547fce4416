"""Faults of a module: one comparison, operator, constant, condition, result or call."""

import ast
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# What one node may be mistaken for; two entries are two mutants.
OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
NAMES = {"minimum": "maximum", "min": "max", "argmin": "argmax", "any": "all"}
NAMES |= {"cumsum": "cumprod", "popleft": "pop", "cummax": "cummin"}
NAMES |= {new: old for old, new in NAMES.items()}
TEXT = (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom, ast.Assert)


class Mutant(NamedTuple):
    """One fault: `old` becomes `new` at a place of a file, relative to the root."""

    file: str
    line: int
    old: str
    new: str
    start: int  # of `old`, in characters of the file
    column: int
    tests: tuple[str, ...]  # arguments of pytest

    def __str__(self):
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}:{self.column}  {old}  ->  {new}"


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become."""
    match node:
        case ast.Compare(left, [op], right):
            for other in OPERATORS[type(op)]:
                yield ast.Compare(left, [other()], right)
        case ast.BinOp(left, op, right):
            for other in OPERATORS.get(type(op), ()):
                yield ast.BinOp(left, other(), right)
        case ast.AugAssign(target, op, value):
            for other in OPERATORS.get(type(op), ()):
                yield ast.AugAssign(target, other(), value)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OPERATORS[type(op)][0](), values)
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Attribute(value, name, context) if name in NAMES:
            yield ast.Attribute(value, NAMES[name], context)
        case ast.Name(name, context) if name in NAMES:
            yield ast.Name(NAMES[name], context)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that count: no types, words for people, imports or decorators."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, TEXT):
                yield node
                yield from nodes(node)


def mutants(file: str, tests: tuple[str, ...]) -> list[Mutant]:
    """All mutants of a module, in the order of the file."""
    text = (ROOT / file).read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:  # ast counts bytes within a line
        head = text[starts[line - 1] :].encode()[:column]
        return starts[line - 1] + len(head.decode())

    found = []
    for node in nodes(ast.parse(text)):
        for other in changed(node):
            start = place(node.lineno, node.col_offset)  # pyright: ignore
            stop = place(node.end_lineno, node.end_col_offset)  # pyright: ignore
            new = ast.unparse(ast.fix_missing_locations(other))
            if isinstance(other, ast.expr):
                new = f"({new})"
            one = _mutant(file, text, text[start:stop], new, start, tests)
            with contextlib.suppress(SyntaxError):
                compile(planted(one, text), file, "exec")
                found.append(one)
    return found


def _mutant(file, text, old, new, start, tests) -> Mutant:
    before = text[:start]
    line, column = before.count("\n") + 1, start - before.rfind("\n")
    return Mutant(file, line, old, new, start, column, tests)


def at_text(file: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    """The fault that replaces a text.

    Raises:
        ValueError: if it is not there, or more than once.
    """
    text = (ROOT / file).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{file} has {old!r} {text.count(old)} times, not once")
    return _mutant(file, text, old, new, text.index(old), tests)


def planted(mutant: Mutant, text: str) -> str:
    """The text of the file with the fault in it."""
    stop = mutant.start + len(mutant.old)
    return text[: mutant.start] + mutant.new + text[stop:]


def sample(file: str, tests: tuple[str, ...], size: int, seed: int) -> list[Mutant]:
    """The first `size` of a shuffled list, so that a larger sample holds a smaller."""
    found = mutants(file, tests)
    random.Random(f"{seed} {file}").shuffle(found)
    return found[:size] if size else found
