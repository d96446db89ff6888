"""Writes the source of a reader of one message class (see `oncelog.protocol.schema`).

Every length is checked against the bytes that are left before anything is made from it, and the
elements of all arrays of a message together are bounded (`MESSAGE_ELEMENTS_COUNT_MAX`).
"""

import datetime
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import MESSAGE_ELEMENTS_COUNT_MAX, STRING_BYTES_MAX
from oncelog.protocol import wire
from oncelog.protocol.conversion import FieldShape, converter, defaults, shapes
from oncelog.protocol.schema_source import Source

ERRORS: Final[dict[int, ErrorCode]] = {int(error): error for error in ErrorCode}
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
NULL_MARKER: Final = 0xFF
PRESENT_MARKER: Final = 1
"""The byte in front of a nullable struct (KIP-893); any other than `NULL_MARKER` means present."""

LAYOUTS: Final[dict[str, str]] = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}
"""How the kinds of fixed size are packed."""

_CHANGES: Final[dict[str, str]] = {
    "error_code": "errors_get({0}, unknown_server_error)",
    "timedelta_i32": "MILLISECOND * {0}",
    "timedelta_i64": "MILLISECOND * {0}",
    "datetime_i64": "EPOCH + MILLISECOND * {0}",
    "uuid": "uuid_of({0})",
}
"""What makes the value of a kind of what was unpacked, where that is not the value itself."""


def _has_arrays(cls: type) -> bool:
    return any(
        shape.is_array or (is_dataclass(shape.inner) and _has_arrays(shape.inner))
        for shape in shapes(cls)
    )


class ReaderSource:
    """The source of the function that reads `cls` and returns a `target`."""

    def __init__(self, cls: type, target: type) -> None:
        self.source = Source(
            *("read", "buffer", "position", "limit", "budget", "size", "count", "end"),
            EPOCH=EPOCH,
            MILLISECOND=MILLISECOND,
            StructError=struct.error,
            errors_get=ERRORS.get,
            iter_tags=wire.iter_tags,
            malformed=wire.malformed,
            read_uvarint=wire.read_uvarint,
            skip_tags=wire.skip_tags,
            unknown_server_error=ErrorCode.unknown_server_error,
            unpack_from=struct.unpack_from,
            uuid_of=wire.uuid_of,
        )
        self._flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
        self._run: list[tuple[str, str]] = []
        """Layout and variable of the fields of fixed size that come next."""
        self._changes: list[str] = []
        """What is done with them once they are unpacked."""
        line, block = self.source.line, self.source.block
        with block("def read(buffer, position):"):
            line("limit = len(buffer)")
            if _has_arrays(cls):
                line(f"budget = {MESSAGE_ELEMENTS_COUNT_MAX}")
            with block("try:"):
                self._entity(cls, target, "", "return ")
            with block(
                "except (IndexError, StructError, UnicodeDecodeError, OverflowError) as error:"
            ):
                line(f'raise malformed(f"{cls.__name__}: {{error}}") from error')

    def _entity(self, cls: type, target: type, prefix: str, before: str, after: str = "") -> None:
        """Read a struct; `before` and `after` stand around the call that makes the value of it."""
        wanted = {shape.name: shape for shape in shapes(target)}
        variables = {shape.name: self.source.variable(prefix + shape.name) for shape in shapes(cls)}
        tagged = []
        for shape in shapes(cls):
            # What the target lacks is read as what it is, and left there.
            inner = wanted.get(shape.name, shape).inner
            if shape.tag is None:
                self._field(variables[shape.name], shape, inner)
            else:
                tagged.append((variables[shape.name], shape, inner))
        if tagged:
            self._tags(cls, tagged, prefix)
        elif self._flexible:
            self._skip_tags(prefix)
        self._unpack()
        arguments = []
        for field in fields(target):
            if field.name in variables:
                arguments.append(f"{field.name}={variables[field.name]}")
            elif field.default is MISSING:
                default = self.source.constant(
                    f"{field.name}_default", defaults(target)[field.name]
                )
                arguments.append(f"{field.name}={default}")
        name = self.source.constant(target.__name__, target)
        self.source.call(before, name, arguments, after)

    def _field(self, variable: str, shape: FieldShape, target: type) -> None:
        if shape.is_array:
            self._array(variable, shape, target)
        elif is_dataclass(shape.inner):
            self._nested(variable, shape, target)
        elif shape.kafka_type == "string":
            self._string(variable, shape.is_nullable)
        elif shape.kafka_type in ("bytes", "records"):
            self._bytes(variable, shape.is_nullable)
        else:
            self._fixed(variable, shape)

    def _fixed(self, variable: str, shape: FieldShape) -> None:
        kind = shape.kafka_type or ""
        self._run.append((LAYOUTS[kind], variable))
        if kind in _CHANGES:
            change = _CHANGES[kind].format(variable)
            if kind == "datetime_i64" and shape.is_nullable:
                change = f"None if {variable} == -1 else {change}"
            self._changes.append(f"{variable} = {change}")

    def _unpack(self) -> None:
        """Read the run of fields of fixed size that was collected."""
        if not self._run:
            return
        layout = "".join(part for part, _ in self._run)
        names = ", ".join(name for _, name in self._run)
        if layout == "B":
            self.source.line(f"{names} = buffer[position]")
        else:
            names = f"({names},)" if len(self._run) == 1 else names
            self.source.line(f"{names} = {self.source.unpacker(layout)}(buffer, position)")
        self.source.line(f"position += {struct.calcsize('>' + layout)}")
        for change in self._changes:
            self.source.line(change)
        self._run.clear()
        self._changes.clear()

    def _length(self, variable: str, layout: str) -> None:
        """Read a length or count; -1 stands for null.

        A compact one is one more than it says, in one byte as a rule.
        """
        if not self._flexible:
            self._run.append((layout, variable))
            self._unpack()
            return
        self._run.append(("B", variable))
        self._unpack()
        with self.source.block(f"if {variable} > 127:"):
            self.source.line(f"{variable}, position = read_uvarint(buffer, position - 1)")
        self.source.line(f"{variable} -= 1")

    @contextmanager
    def _unless(self, null: str, variable: str, is_nullable: bool) -> Iterator[None]:
        """What is added within is for a value that is not null."""
        if not is_nullable:
            yield
            return
        with self.source.block(f"if {null}:"):
            self.source.line(f"{variable} = None")
        with self.source.block("else:"):
            yield

    def _refuse_if(self, condition: str, message: str) -> None:
        with self.source.block(f"if {condition}:"):
            self.source.line(f'raise malformed(f"{message}")')

    def _string(self, variable: str, is_nullable: bool) -> None:
        line = self.source.line
        self._length("size", "h")
        with self._unless("size == -1", variable, is_nullable):
            line("end = position + size")
            self._refuse_if(
                f"not 0 <= size <= {STRING_BYTES_MAX} or end > limit", "string of {size} bytes"
            )
            line(f'{variable} = str(buffer[position:end], "utf-8")')
            line("position = end")

    def _bytes(self, variable: str, is_nullable: bool) -> None:
        line = self.source.line
        self._length("size", "i")
        with self._unless("size == -1", variable, is_nullable):
            line("end = position + size")
            self._refuse_if(
                "size < 0 or end > limit",
                f"{variable} of {{size}} bytes, {{limit - position}} left",
            )
            line(f"{variable} = memoryview(buffer)[position:end].tobytes()")
            line("position = end")

    def _array(self, variable: str, shape: FieldShape, target: type) -> None:
        line = self.source.line
        self._length("count", "i")
        with self._unless("count == -1", variable, shape.is_nullable):
            # Every element takes at least one byte.
            self._refuse_if(
                "not 0 <= count <= limit - position",
                f"{variable} with {{count}} elements, {{limit - position}} bytes left",
            )
            line("budget -= count")
            self._refuse_if("budget < 0", f"more than {MESSAGE_ELEMENTS_COUNT_MAX} elements")
            layout = LAYOUTS.get(shape.kafka_type or "")
            if layout and shape.kafka_type not in _CHANGES:
                line(f'{variable} = unpack_from(f">{{count}}{layout}", buffer, position)')
                line(f"position += {struct.calcsize('>' + layout)} * count")
                return
            line(f"{variable} = []")
            with self.source.block("for _ in range(count):"):
                self._element(variable, shape, target)
            line(f"{variable} = tuple({variable})")

    def _element(self, variable: str, shape: FieldShape, target: type) -> None:
        if is_dataclass(shape.inner):
            self._entity(shape.inner, target, f"{shape.name}_", f"{variable}.append(", ")")
            return
        item = self.source.variable(f"{variable}_item")
        # For arrays of primitives nullability is that of the array.
        self._field(item, shape._replace(is_array=False, is_nullable=False), target)
        self._unpack()
        self.source.line(f"{variable}.append({item})")

    def _nested(self, variable: str, shape: FieldShape, target: type) -> None:
        marker = self.source.variable(f"{variable}_marker")
        if shape.is_nullable:
            self._run.append(("B", marker))
        self._unpack()
        with self._unless(f"{marker} == {NULL_MARKER}", variable, shape.is_nullable):
            self._entity(shape.inner, target, f"{shape.name}_", f"{variable} = ")

    def _skip_tags(self, prefix: str) -> None:
        """Step over the tagged fields of a struct that has none that we know: mostly a zero."""
        tags = self.source.variable(f"{prefix}tags")
        self._run.append(("B", tags))
        self._unpack()
        with self.source.block(f"if {tags}:"):
            self.source.line("position = skip_tags(buffer, position - 1)")

    def _tags(self, cls: type, tagged: list[tuple[str, FieldShape, type]], prefix: str) -> None:
        """Read the tagged fields that we know, and step over the others."""
        self._unpack()
        line, block = self.source.line, self.source.block
        for variable, shape, target in tagged:
            default = defaults(cls)[shape.name]
            if is_dataclass(default):
                default = converter(shape.inner, target)(default)
            line(f"{variable} = {self.source.constant(variable + '_default', default)}")
        tag = self.source.variable(f"{prefix}tag")
        end = self.source.variable(f"{prefix}tag_end")
        with block(f"for {tag}, position, {end} in iter_tags(buffer, position):"):
            for variable, shape, target in tagged:
                with block(f"if {tag} == {shape.tag}:"):
                    # A tagged field is null by its absence; what is present is not nullable.
                    self._field(variable, shape._replace(is_nullable=False), target)
                    self._unpack()
                    self._refuse_if(
                        f"position != {end}",
                        f"{variable} ends at {{position}}, its tag at {{{end}}}",
                    )
            line(f"position = {end}")
