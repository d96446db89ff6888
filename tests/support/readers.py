"""Finds who reads each configuration key, from the sources alone.

A key is read where the sources ask a `BrokerConfig` for it: ``config.get_int("num.partitions")``,
``config.topic_int(overrides, "segment.bytes")``, ``number("segment.bytes")`` with a `number` made
by ``partial(config.topic_int, overrides)``, or ``self._values["listeners"]`` in the class itself.
The key may be a constant, an f-string, or a name that the same function binds to constants.

Two kinds of read do nothing, and do not count: one whose value goes into an attribute or a
dataclass's field that nobody loads, and one in a function that nobody mentions. Reads with a key
that cannot be told (those that show every setting to a client) are passed over.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS

__all__ = ["SOURCES", "Reads", "effective_keys", "find_reads"]

SOURCES = Path(__file__).resolve().parents[2] / "src" / "oncelog"

BROKER_GETTERS = frozenset({"get_int", "get_bool", "get_list", "get_str", "get_float"})
TOPIC_GETTERS = frozenset({"topic_value", "topic_int", "topic_str", "topic_list", "topic_float"})
LISTENER_READER = "value_of"
"""The function that reads a listener's own keys, as `oncelog.core.sasl_listener` is given it."""
VALUES = "_values"
CONFIGS = frozenset({"config", "_config"})

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
Definitions = ast.FunctionDef | ast.AsyncFunctionDef


class Reads(NamedTuple):
    """The keys that are read, by whose they are, and the places: "broker/net/server.py:47"."""

    broker: dict[str, list[str]]
    topic: dict[str, list[str]]


class Source:
    """One parsed file: all its nodes, with the way from each up to the module."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.tree = ast.parse(text)
        self.nodes: list[ast.AST] = [self.tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in self.nodes:  # It grows as we go: every node comes, parents first.
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                self.nodes.append(child)
        self._bound: dict[Scope, dict[str, list[ast.expr]]] = {}

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The function that holds `node`, or the module."""
        return next(n for n in self.above(node) if isinstance(n, Scope))

    def bound(self, node: ast.AST, name: str) -> list[ast.expr]:
        """What the function around `node`, or else the module, binds a name to."""
        for scope in (self.scope(node), self.tree):
            if scope not in self._bound:
                self._bound[scope] = _bindings_in(scope)
            if name in self._bound[scope]:
                return self._bound[scope][name]
        return []


class Uses:
    """What the sources mention: functions by name, attributes that are loaded, dataclass fields."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.fields: dict[str, list[str]] = {}
        self._mentions: dict[str, list[tuple[Source, ast.AST]]] = defaultdict(list)
        functions: list[Definitions] = []
        for source in sources:
            for node in source.nodes:
                if isinstance(node, Definitions):
                    functions.append(node)
                elif isinstance(node, ast.ClassDef):
                    self.fields[node.name] = [
                        line.target.id
                        for line in node.body
                        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                    ]
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    self._mentions[node.attr].append((source, node))
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    self._mentions[node.id].append((source, node))
        self._dead = {node for node in functions if self._is_unmentioned(node)}

    def _is_unmentioned(self, function: Definitions) -> bool:
        if function.decorator_list or function.name.startswith("__"):
            return False
        return all(function in source.above(node) for source, node in self._mentions[function.name])

    def is_dead(self, source: Source, node: ast.AST) -> bool:
        """Whether `node` stands in a function that nobody else mentions."""
        return any(around in self._dead for around in source.above(node))

    def is_loaded(self, attribute: str, owner: str = "") -> bool:
        """Whether live code outside the class `owner` loads an attribute of this name."""
        return any(
            isinstance(node, ast.Attribute)
            and not self.is_dead(source, node)
            and not any(isinstance(n, ast.ClassDef) and n.name == owner for n in source.above(node))
            for source, node in self._mentions[attribute]
        )


def find_reads(folder: Path = SOURCES) -> Reads:
    """Every read below `folder` that has an effect."""
    sources = [
        Source(path.relative_to(folder).as_posix(), path.read_text())
        for path in sorted(folder.rglob("*.py"))
    ]
    uses = Uses(sources)
    reads = Reads(defaultdict(list), defaultdict(list))
    for source in sources:
        for node in source.nodes:
            found = _read(source, node)
            if found is None or uses.is_dead(source, node) or not _is_used(source, uses, node):
                continue
            is_topic, key = found
            for name in sorted(_texts(source, key)):
                place = f"{source.name}:{key.lineno}"
                (reads.topic if is_topic else reads.broker)[name].append(place)
    return reads


def effective_keys(reads: Reads) -> tuple[set[str], set[str]]:
    """(broker keys, topic keys) that have an effect.

    A broker key has one too where it stands in for a topic key that has.
    """
    topic = reads.topic.keys() & TOPIC_KEYS.keys()
    stand_ins = {synonym.broker_key for name in topic for synonym in TOPIC_KEYS[name][1]}
    return reads.broker.keys() & BROKER_KEYS.keys() | stand_ins, topic


def _read(source: Source, node: ast.AST) -> tuple[bool, ast.expr] | None:
    """(whether a topic's key, the expression of the key) where `node` reads a setting."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        is_values = isinstance(node.value, ast.Attribute) and node.value.attr == VALUES
        return (False, node.slice) if is_values else None
    if not isinstance(node, ast.Call) or not node.args:
        return None
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in BROKER_GETTERS:
            return False, node.args[0]
        if node.func.attr == "get" and _last_name(node.func.value) in CONFIGS:
            return False, node.args[0]
        if node.func.attr in TOPIC_GETTERS and len(node.args) == 2:
            return True, node.args[1]
    elif isinstance(node.func, ast.Name) and node.func.id == LISTENER_READER:
        return False, node.args[0]
    elif isinstance(node.func, ast.Name) and any(
        isinstance(bound, ast.Call)
        and _last_name(bound.func) == "partial"
        and _last_name(bound.args[0]) in TOPIC_GETTERS
        for bound in source.bound(node, node.func.id)
    ):
        return True, node.args[0]
    return None


def _is_used(source: Source, uses: Uses, node: ast.AST) -> bool:
    """False where the value is only stored, in a place that nobody loads."""
    inner = node
    for around in source.above(node):
        if isinstance(around, ast.keyword):
            call = source.parents[around]
            owner = _last_name(call.func) if isinstance(call, ast.Call) else ""
            if around.arg in uses.fields.get(owner, ()):
                return uses.is_loaded(str(around.arg), owner)
        elif isinstance(around, ast.Call) and inner in around.args:
            owner = _last_name(around.func)
            fields = uses.fields.get(owner, [])
            position = around.args.index(inner)
            if position < len(fields):
                return uses.is_loaded(fields[position], owner)
        elif isinstance(around, ast.Assign | ast.AnnAssign):
            targets = around.targets if isinstance(around, ast.Assign) else [around.target]
            names = [target.attr for target in targets if isinstance(target, ast.Attribute)]
            return not names or any(uses.is_loaded(name) for name in names)
        elif isinstance(around, ast.stmt):
            return True
        inner = around
    return True


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _texts(source: Source, node: ast.expr, within: frozenset[str] = frozenset()) -> set[str]:
    """The strings that an expression can be; none where that cannot be told.

    `within` are the names that are being followed.
    """
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.IfExp):
        return _texts(source, node.body, within) | _texts(source, node.orelse, within)
    if isinstance(node, ast.FormattedValue):
        return _texts(source, node.value, within)
    if isinstance(node, ast.JoinedStr):
        parts = [sorted(_texts(source, part, within)) for part in node.values]
        return {"".join(chosen) for chosen in product(*parts)}
    if isinstance(node, ast.Name) and node.id not in within:
        values = source.bound(node, node.id)
        return {text for v in values for text in _texts(source, v, within | {node.id})}
    return set()


def _bindings_in(scope: Scope) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(scope):
        for target, value in _bindings(node):
            if isinstance(target, ast.Name):
                found[target.id].append(value)
    return dict(found)


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of assignments, and of loops over literal tuples and lists."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension) and isinstance(
        node.iter, ast.Tuple | ast.List
    ):
        for value in node.iter.elts:
            yield from _unpacked(node.target, value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value
