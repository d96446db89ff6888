"""Finds the places of a source file where a small change makes a bug, from its syntax tree.

Pure: text in, `Mutant`s out, always the same ones in the same order. A mutant is named by its
function, the kind of change and a number among those of one kind in the function, so that its name
lives through changes elsewhere in the file.

`mutants_of` finds slips of a character; `tests.support.semantic_sites` finds those of a thought.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

__all__ = ["Mutant", "SiteFinder", "is_no_behaviour", "mutants_of"]

_OTHER_OPERATOR: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_NOTHING = {"effects": "()", "replies": "()", "id": "None", "resume": "None"}
"""Parts of a `Decision`, and what stands for their absence."""
_ANOTHER_ERROR = "unknown_server_error"
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


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of its functions."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


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


class _Finder(SiteFinder):
    def __init__(self, file: str, source: bytes) -> None:
        super().__init__(file, source)
        self._negated: set[ast.expr] = set()

    # --- statements

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        self._negated.add(test)
        self._replace("condition negated", test, f"(not ({self._text(test)}))")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not is_no_behaviour(value):
            self._replace("call dropped", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_part = isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if is_part and self._scope[-1] not in ("__init__", "__post_init__"):
            self._replace("assignment dropped", node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("assignment dropped", node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    # --- expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        is_opposite = not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if len(node.ops) != 1 or (is_opposite and node in self._negated):
            return
        old, new = _OTHER_OPERATOR[type(node.ops[0])]
        left_end = self._span(node.left)[1]
        start = self._source.index(old.encode(), left_end)
        self._add("comparison changed", node.lineno, start, start + len(old), new)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left in node.values[:-1]:
            start = self._source.index(f"{old}".encode(), self._span(left)[1])
            self._add(f"{old} to {new}", left.lineno, start, start + len(old), new)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant changed", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("constant changed", node, str(node.value + 1))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = node.value
        if isinstance(owner, ast.Name) and owner.id == "ErrorCode":
            self._replace("error changed", node, f"ErrorCode.{_ANOTHER_ERROR}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_no_behaviour(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id == "Decision":
            for keyword in node.keywords:
                if keyword.arg in _NOTHING:
                    nothing = _NOTHING[keyword.arg]
                    self._replace(f"{keyword.arg} dropped", keyword.value, nothing)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts for people; the places inside of them are not told exactly."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Our own bugs and bad bytes: their texts are no behaviour."""


def is_no_behaviour(call: ast.Call) -> bool:
    """Whether a call only checks, or only logs."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in _CHECKS
    return isinstance(function, ast.Attribute) and function.attr in _LOGGING
