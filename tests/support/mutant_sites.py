"""Finds the places of a source file where a small change makes a bug, from its syntax tree.

Pure: text in, `Mutant`s out, always the same ones in the same order. A mutant is named by its
function, the kind of change and a number among those of one kind in the function, so that its name
lives through changes elsewhere in the file.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

__all__ = ["Mutant", "SiteFinder", "is_no_behaviour"]

_CHECKS = frozenset({"assert_never", "require", "super"})
"""Calls that are no behaviour of their own."""
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed place: `before` at `start` becomes `after`. Offsets are those of the bytes."""

    file: str
    name: str
    line: int
    start: int
    before: str
    after: str

    def planted(self, source: bytes) -> bytes:
        """The file with the bug in it."""
        end = self.start + len(self.before.encode())
        assert source[self.start : end] == self.before.encode(), self.name
        return source[: self.start] + self.after.encode() + source[end:]


class SiteFinder(ast.NodeVisitor):
    """Goes through the functions of a file. What a place becomes is decided by who inherits."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._file = file
        self._source = source
        lines = source.splitlines(keepends=True)
        self._line_starts = [0]
        for line in lines:
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._scope: list[str] = []
        self._in_function = False
        self._counts: Counter[str] = Counter()

    # --- the places

    def _at(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._at(node.lineno, node.col_offset)
        return start, self._at(node.end_lineno, node.end_col_offset)

    def _add(self, kind: str, line: int, start: int, end: int, after: str) -> None:
        label = f"{'.'.join(self._scope)}: {kind}"
        self._counts[label] += 1
        name = f"{label} #{self._counts[label]}"
        before = self._source[start:end].decode()
        self.found.append(Mutant(self._file, name, line, start, before, after))

    def _replace(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._add(kind, node.lineno, *self._span(node), after)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    # --- scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._scope.append(node.name)
        before, self._in_function = self._in_function, True
        for statement in node.body:
            self.visit(statement)
        self._in_function = before
        self._scope.pop()

    def visit(self, node: ast.AST) -> None:
        """Outside of functions only scopes count: constants and tables are data."""
        scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if self._in_function or isinstance(node, scopes):
            super().visit(node)


def is_no_behaviour(call: ast.Call) -> bool:
    """Whether a call only checks, or only logs."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in _CHECKS
    return isinstance(function, ast.Attribute) and function.attr in _LOGGING
