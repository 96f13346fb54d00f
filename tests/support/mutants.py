"""Small changes to the text of a module, one place at a time, each of which a test should notice."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# What each sign becomes: its neighbour at the boundary, its opposite.
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LOGICAL: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}
_BOUNDING = ("min", "max", "minimum", "maximum", "clip")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change. Lines count from 1, columns are those of the UTF-8 text, as `ast` has them."""

    kind: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        lines = source.encode().splitlines(keepends=True)
        first, last = lines[self.line - 1], lines[self.end_line - 1]
        changed = first[: self.column] + f"({self.after})".encode() + last[self.end_column :]
        return b"".join([*lines[: self.line - 1], changed, *lines[self.end_line :]]).decode()

    def told(self) -> str:
        """`before → after` on one line."""
        return f"{' '.join(self.before.split())} → {self.after}"


@functools.cache
def mutants_of(source: str) -> tuple[Mutant, ...]:
    """Every change of the kinds above, in the order of the text; what is said in errors and types is left alone."""
    lines = source.encode().splitlines(keepends=True)
    return tuple(
        _mutant(lines, kind, node, changed)
        for node in _computing(ast.parse(source))
        for kind, changed in _changes(node)
    )


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that compute: not annotations, decorators, messages, patterns."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert):
                yield child
                yield from _computing(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(what kind of change, the node after it)"""
    match node:
        case ast.Compare(ops=[sign]):
            for other in _COMPARED.get(type(sign), ()):
                yield "comparison", _with(node, ops=[other()])
        case ast.BinOp(op=sign) if type(sign) in _COMPUTED:
            yield "arithmetic", _with(node, op=_COMPUTED[type(sign)]())
        case ast.BoolOp(op=sign):
            yield "logic", _with(node, op=_LOGICAL[type(sign)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield "sign", operand
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", ast.Constant(value + 1 if value in (0, 1) else 2 * value)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[first, _, *_]) if name in _BOUNDING:
            yield "bound", first


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _mutant(lines: list[bytes], kind: str, node: Any, changed: ast.AST) -> Mutant:
    told = lines[node.lineno - 1 : node.end_lineno]
    told = [*told[:-1], told[-1][: node.end_col_offset]]
    return Mutant(
        kind=kind,
        line=node.lineno,
        column=node.col_offset,
        end_line=node.end_lineno,
        end_column=node.end_col_offset,
        before=b"".join(told)[node.col_offset :].decode(),
        after=ast.unparse(changed),
    )
