"""Secrets are compared in a time that says nothing about them: by `hmac.compare_digest` alone."""

import ast
import inspect
import re
from pathlib import Path

import oncelog.core.sasl
import oncelog.peer.sasl
import oncelog.security

ROOMS = [
    Path(inspect.getfile(oncelog.security)).parent,
    Path(inspect.getfile(oncelog.peer.sasl)).parent,
]
FILES = [path for room in ROOMS for path in sorted(room.glob("*.py"))] + [
    Path(inspect.getfile(oncelog.core.sasl))
]
SECRET = re.compile(
    r"password|proof|signature|secret|salted|stored|computed|expected|(client|server)_key"
)
ORDERS = (ast.Eq, ast.NotEq)


def compared_secrets(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops):
            sides = [node.left, *node.comparators]
            names = [
                name
                for side in sides
                for part in ast.walk(side)
                if not isinstance(side, ast.Call)
                for name in [getattr(part, "id", getattr(part, "attr", ""))]
            ]
            if any(SECRET.search(name) for name in names):
                found.append(ast.unparse(node))
    return found


def test_no_secret_is_compared_by_its_bytes() -> None:
    assert len(FILES) > 8
    found = {path.name: compared_secrets(path.read_text()) for path in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_such_a_comparison_would_be_found() -> None:
    assert compared_secrets("if computed == stored: pass")
    assert compared_secrets("a = self._password.value != given")
    assert not compared_secrets("len(proof) == len(signature)")
