"""A page with the public names of the package, their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Final, is_typeddict

__all__ = ["MODULES", "document", "members", "public"]

MODULES: Final = ("oncelog", "oncelog.client", "oncelog.sync", "oncelog.testing", "oncelog.spark")

LINE_LENGTH_MAX: Final = 100
OF_THE_SENDER: Final = frozenset(
    {"admit", "batch_failed", "identify", "is_admitted", "request_lost", "sending"}
)
"""Methods of a producer that only its own task calls."""

HEAD: Final = """\
# API

The public names; whatever is not here may change with any version. The guides tell how to use
them: [clients](client.md), [tests](testing.md), [pipelines](spark.md). Durations are in
milliseconds, sizes in bytes.
"""

_UNPACKED: Final = re.compile(r"^\*<class '([\w.]+)'>$")
_MODULE_NAMES: Final = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def document() -> str:
    """The whole page."""
    told: set[int] = set()
    return HEAD + "".join(_module(name, told) for name in MODULES)


def public(name: str) -> Iterator[tuple[str, object]]:
    """The public names of a module that are its own to tell, and what they are."""
    module = import_module(name)
    for each in module.__all__:
        value = getattr(module, each)
        if not isinstance(value, ModuleType) and not each.startswith("__"):
            yield each, value


def members(owner: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that a class of ours has, inherited ones included."""
    seen = set()
    for base in owner.__mro__:
        if not base.__module__.startswith("oncelog"):
            continue
        for name, value in vars(base).items():
            is_callable = isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(
                value
            )
            if name.startswith("_") or name in seen or name in OF_THE_SENDER:
                continue
            if is_callable or isinstance(value, property):
                seen.add(name)
                yield name, value


def _module(name: str, told: set[int]) -> str:
    text = f"\n## {name}\n\n"
    for each, value in public(name):
        if id(value) in told:
            continue
        told.add(id(value))
        text += _entry(f"{name}.{each}", value)
    return text


def _entry(name: str, value: object) -> str:
    if isinstance(value, type):
        return _class(name, value)
    if not callable(value):
        return f"### {name}\n\n`{value!r}`\n\n"
    return f"### {name}\n\n{_signature('def', name, value)}{_prose(value)}\n"


def _class(name: str, value: type) -> str:
    text = f"### {name}\n\n"
    if is_typeddict(value):
        names = ", ".join(f"`{key}`" for key in sorted(value.__annotations__))
        return f"{text}{_prose(value)}Keys, none of which is required: {names}.\n\n"
    if issubclass(value, Enum):
        names = ", ".join(f"`{member.name}`" for member in value)
        return f"{text}{_prose(value)}{names}.\n\n"
    if issubclass(value, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        text += f"An error, of {bases}. "
    else:
        text += _signature("class", name, value)
    text += _prose(value)
    for member, found in members(value):
        full = f"{value.__name__}.{member}"
        text += f"#### {full}\n\n"
        if not isinstance(found, property):
            function = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
            text += _signature("def", member, function)
        text += _prose(found)
    return text


def _signature(kind: str, name: str, value: object) -> str:
    """The name with its parameters, one a line where they are many."""
    signature = inspect.signature(value)  # type: ignore[arg-type]
    shown = [_parameter(each) for each in _with_marks(signature)]
    result = ""
    if kind == "class":
        head, name, indent = f"class {name.rpartition('.')[2]}:\n    ", "__init__", "    "
        shown.insert(0, "self")
    else:
        head, name, indent = "", name.rpartition(".")[2], ""
        if signature.return_annotation is not signature.empty:
            result = f" -> {_annotation(signature.return_annotation)}"
    word = "async def" if inspect.iscoroutinefunction(value) else "def"
    line = f"{indent}{word} {name}({', '.join(shown)}){result}: ..."
    if len(line) > LINE_LENGTH_MAX:
        inside = "".join(f"{indent}    {each},\n" for each in shown)
        line = f"{indent}{word} {name}(\n{inside}{indent}){result}: ..."
    text = (head + (line.removeprefix(indent) if head else line)).replace("'", '"')
    return f"```pyi\n{text}\n```\n\n"


def _with_marks(signature: inspect.Signature) -> Iterator[inspect.Parameter | str]:
    """The parameters but `self`, and the star in front of those that are keywords only."""
    starred = False
    for name, parameter in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        yield parameter


def _parameter(parameter: inspect.Parameter | str) -> str:
    if isinstance(parameter, str):
        return parameter
    text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: object) -> str:
    """A default as it stands in the source, `...` where it is no literal (as the environment)."""
    try:
        ast.literal_eval(repr(value))
    except (SyntaxError, ValueError):
        return "..."
    return repr(value)


def _annotation(annotation: object) -> str:
    """An annotation without the modules of its names."""
    text = str(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))
    text = _UNPACKED.sub(r"Unpack[\1]", text)
    return _MODULE_NAMES.sub("", text)


def _prose(value: object) -> str:
    """The docstring as Markdown."""
    text = inspect.getdoc(value) or ""
    return f"{re.sub('``', '`', text).replace('::', ':')}\n\n" if text else ""
