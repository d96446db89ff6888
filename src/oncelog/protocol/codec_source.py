"""Writes the source of one function and compiles it, for the generators of readers and writers.

Neighbouring fields of fixed size are collected in a run, which becomes a single `Struct`. This
module must not know any message, nor whether it is read or written.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final

_INDENT: Final = "    "
_LINE_LENGTH_MAX: Final = 100

_LAYOUT_LETTERS: Final = str.maketrans({"?": "o"})
"""Letters of a layout in a function's name: `unpack_qho` is `Struct(">qh?").unpack_from`."""


class Source:
    """The lines of a function that is being written, and the objects that they name."""

    def __init__(self, *reserved: str, **objects: Any) -> None:
        self._lines: list[str] = []
        self._indent = 0
        self._taken = {*reserved, *objects}
        self._objects: dict[str, Any] = objects
        self._names: dict[int, str] = {}

    def line(self, text: str) -> None:
        """Add one line at the present indentation."""
        self._lines.append(_INDENT * self._indent + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add a header; what is added within it is indented."""
        self.line(header)
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    def call(self, before: str, function: str, arguments: list[str], after: str = "") -> None:
        """Add a line with a call, or one line per argument if the call is too long."""
        short = f"{before}{function}({', '.join(arguments)}){after}"
        if len(short) + len(_INDENT) * self._indent <= _LINE_LENGTH_MAX:
            self.line(short)
            return
        with self.block(f"{before}{function}("):
            for argument in arguments:
                self.line(f"{argument},")
        self.line(f"){after}")

    def variable(self, wanted: str) -> str:
        """Return a name that is unique in the function."""
        while wanted in self._taken:
            wanted += "_"
        self._taken.add(wanted)
        return wanted

    def constant(self, wanted: str, value: Any) -> str:
        """Return the source of a value: its literal, or a name bound to it."""
        if value is None or type(value) in (bool, int, float, str, bytes) or value == ():
            return repr(value)
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = self.variable(wanted)
            self._objects[name] = value
        return name

    def packer(self, layout: str) -> str:
        """The name of a function that packs a big-endian layout."""
        return self._struct("pack", "pack", layout)

    def unpacker(self, layout: str) -> str:
        """The name of a function that unpacks a big-endian layout."""
        return self._struct("unpack", "unpack_from", layout)

    def _struct(self, verb: str, method: str, layout: str) -> str:
        name = f"{verb}_{layout.translate(_LAYOUT_LETTERS)}"
        if name not in self._objects:
            self._objects[name] = getattr(Struct(f">{layout}"), method)
            self._taken.add(name)
        return name

    @property
    def text(self) -> str:
        """Return all lines so far."""
        return "\n".join(self._lines) + "\n"

    def compiled(self, name: str, title: str) -> Callable[..., Any]:
        """The function `name` of this source. A traceback shows its lines under `title`."""
        text = self.text
        file_name = f"<{title}>"
        linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
        exec(compile(text, file_name, "exec"), self._objects)  # the text is made of schemas only
        function: Callable[..., Any] = self._objects[name]
        return function
