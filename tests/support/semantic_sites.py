"""Finds the places of a source file where a plausible mistake makes a bug: the wrong one of two.

The wrong operand of a pair, a call or a condition that was forgotten, two steps in the other order,
the wrong element of several. Where types tell the two apart the type checker finds the bug; whoever
draws from these leaves such ones out.

Pure: text in, `Mutant`s out, always the same ones in the same order. A mutant is named by its
function, the kind of change and a number among those of one kind in the function, so that its name
lives through changes elsewhere in the file.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mutant", "semantic_mutants_of"]

_PAIRS = (
    ("first", "last"),
    ("start", "end"),
    ("begin", "end"),
    ("oldest", "newest"),
    ("before", "after"),
    ("min", "max"),
    ("low", "high"),
    ("next", "previous"),
    ("producer", "coordinator"),
    ("commit", "abort"),
    ("committed", "aborted"),
    ("expected", "current"),
    ("left", "right"),
    ("old", "new"),
    ("mine", "theirs"),
    ("read", "written"),
    ("joined", "left"),
    ("added", "removed"),
)
_OTHER_WORD = dict(_PAIRS) | {b: a for a, b in reversed(_PAIRS)}
_OTHER_FUNCTION = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
}
_OTHER_METHOD = {
    "popleft": "pop",
    "append": "appendleft",
    "appendleft": "append",
    "union": "intersection",
    "intersection": "union",
}
_PURE = frozenset(
    {"abs", "bool", "dict", "frozenset", "int", "len", "list", "max", "min"}
    | {"set", "sorted", "sum", "tuple"}
)
_OF_CONTAINERS = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "pop", "remove", "update"}
    | {"cancel", "set"}
)
"""`set` and `cancel` are also of events and timers: whom they concern goes on in a later turn."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_CHECKS = frozenset({"assert_never", "require", "super"})
"""Calls that are no behaviour of their own."""
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "log"})


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


def semantic_mutants_of(file: str, source: bytes) -> list[Mutant]:
    """All such mutants of a file, in the order of its functions."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


class _SiteFinder(ast.NodeVisitor):
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


class _Finder(_SiteFinder):
    def __init__(self, file: str, source: bytes) -> None:
        super().__init__(file, source)
        self._identifiers = frozenset(_IDENTIFIER.findall(source.decode()))
        self._attributes: dict[str, list[str]] = {}
        """Of each name of the function: its attributes that the function reads, sorted."""
        self._called: set[ast.expr] = set()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._attributes
        self._attributes = _read_attributes(node)
        self._exchange_steps(node)
        super()._function(node)
        self._attributes = outer

    # --- a step forgotten, or two in the other order

    def _exchange_steps(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.append(function.name)
        for body in _bodies(function):
            for one, other in pairwise(body):
                if _is_step(one) and _is_step(other) and not _has_only_names_apart(one, other):
                    start, middle = self._span(one)
                    begin, end = self._span(other)
                    between = self._source[middle:begin].decode()
                    after = self._text(other) + between + self._text(one)
                    self._add("steps exchanged", one.lineno, start, end, after)
        self._scope.pop()

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not _is_no_behaviour(value):
            self._replace("call forgotten", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_part = isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if is_part and self._scope[-1] not in ("__init__", "__post_init__"):
            self._replace("assignment forgotten", node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("assignment forgotten", node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("continue forgotten", node, "pass")

    # --- one condition of several forgotten

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        start, end = self._span(node)
        for left_out in range(len(node.values)):
            kept = [value for index, value in enumerate(node.values) if index != left_out]
            word = " and " if isinstance(node.op, ast.And) else " or "
            after = word.join(f"({self._text(value)})" for value in kept)
            self._add("condition forgotten", node.lineno, start, end, f"({after})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace("filter forgotten", condition, "True")
        self.generic_visit(node)

    # --- the wrong operand of a pair

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Sub):
            after = f"({self._text(node.right)}) - ({self._text(node.left)})"
            self._replace("difference reversed", node, f"({after})")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            other = _OTHER_FUNCTION.get(node.id) if node in self._called else None
            other = other or self._other_of_a_pair(node.id)
            if other is not None:
                self._replace("the other of a pair", node, other)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            return
        owner = self._text(node.value)
        pair = self._other_of_a_pair(node.attr)
        if node in self._called:
            pair = _OTHER_METHOD.get(node.attr, pair)
        if pair is not None:
            self._replace("the other of a pair", node, f"{owner}.{pair}")
        known = self._attributes.get(owner, []) if node not in self._called else []
        if len(known) > 1 and node.attr in known:
            another = known[(known.index(node.attr) + 1) % len(known)]
            if another != pair:
                self._replace("another attribute", node, f"{owner}.{another}")

    def _other_of_a_pair(self, identifier: str) -> str | None:
        """The identifier with one word replaced by its opposite, if this file has such a one."""
        words = identifier.split("_")
        for index, word in enumerate(words):
            if word in _OTHER_WORD:
                other = "_".join([*words[:index], _OTHER_WORD[word], *words[index + 1 :]])
                if other in self._identifiers:
                    return other
        return None

    def visit_Call(self, node: ast.Call) -> None:
        if _is_no_behaviour(node):
            return
        self._called.add(node.func)
        plain = ast.Name | ast.Attribute
        is_symmetric = isinstance(node.func, ast.Name) and node.func.id in ("max", "min")
        for one, other in pairwise(() if is_symmetric else node.args):
            if isinstance(one, plain) and isinstance(other, plain):
                start, middle = self._span(one)
                begin, end = self._span(other)
                between = self._source[middle:begin].decode()
                after = self._text(other) + between + self._text(one)
                self._add("arguments exchanged", one.lineno, start, end, after)
        self.generic_visit(node)

    # --- the wrong element of several

    def visit_Subscript(self, node: ast.Subscript) -> None:
        index = _constant(node.slice)
        if isinstance(node.ctx, ast.Load) and index in (0, -1):
            self._replace("the other end", node.slice, "-1" if index == 0 else "0")
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._replace("only the first", node.iter, f"list({self._text(node.iter)})[:1]")
        self.generic_visit(node)

    # --- what is no behaviour

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts for people; the places inside of them are not told exactly."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Our own bugs and bad bytes: their texts are no behaviour."""

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations of an inner function."""


def _read_attributes(function: ast.AST) -> dict[str, list[str]]:
    read: dict[str, set[str]] = {}
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if id(node) not in called and owner[:1].islower() and isinstance(node.ctx, ast.Load):
                read.setdefault(owner, set()).add(node.attr)
    return {owner: sorted(attributes) for owner, attributes in read.items()}


def _bodies(function: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a function, but not those of functions inside of it."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(function, name, None)
        if isinstance(block, list):
            yield block
            for statement in block:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _bodies(statement)
    for handler in getattr(function, "handlers", ()):
        yield from _bodies(handler)


def _is_step(statement: ast.stmt) -> bool:
    """Whether a statement has an effect: it calls for that alone, or changes what an object has."""
    if isinstance(statement, ast.Expr):
        value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
        return isinstance(value, ast.Call) and not _is_no_behaviour(value)
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Attribute | ast.Subscript)
    return isinstance(statement, ast.AugAssign)


def _has_only_names_apart(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether their order never matters, or hardly ever.

    Both are assignments, or neither changes what the other names and neither calls what could.
    """
    if isinstance(one, ast.Assign) and isinstance(other, ast.Assign):
        return True
    if not (_calls_only_containers(one) and _calls_only_containers(other)):
        return False
    named = [
        {ast.unparse(node) for node in ast.walk(step) if isinstance(node, ast.Attribute)}
        | {node.id for node in ast.walk(step) if isinstance(node, ast.Name)}
        for step in (one, other)
    ]
    return not (_changed_by(one) & named[1] or _changed_by(other) & named[0])


def _calls_only_containers(step: ast.stmt) -> bool:
    """Whether nothing is called but pure functions and methods that change their container.

    A value that is made, as `Append(...)`, changes nothing.
    """
    functions = [node.func for node in ast.walk(step) if isinstance(node, ast.Call)]
    return all(
        (isinstance(function, ast.Name) and _changes_nothing_else(function.id))
        or (isinstance(function, ast.Attribute) and function.attr in _OF_CONTAINERS)
        for function in functions
    ) and not any(isinstance(node, ast.Await) for node in ast.walk(step))


def _changes_nothing_else(function: str) -> bool:
    return function in _PURE or function == "heappush" or function[:1].isupper()


def _changed_by(step: ast.stmt) -> set[str]:
    """The names that a step changes: what it assigns to, and the containers that it calls."""
    changed = [
        node.func.value
        for node in ast.walk(step)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    changed += [
        node.args[0]
        for node in ast.walk(step)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "heappush"
    ]
    if isinstance(step, ast.Assign | ast.AugAssign):
        changed.append(step.targets[0] if isinstance(step, ast.Assign) else step.target)
    return {ast.unparse(_whole(expression)) for expression in changed}


def _whole(expression: ast.expr) -> ast.expr:
    """What an element is of."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression


def _constant(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _is_no_behaviour(call: ast.Call) -> bool:
    """Whether a call only checks, or only logs."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in _CHECKS
    return isinstance(function, ast.Attribute) and function.attr in _LOGGING
