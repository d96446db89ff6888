"""Writes the source of a reader of one message in one version (see `oncelog.protocol.codec`).

Every length is checked against the bytes that are left before anything is made from it, and the
elements of all arrays of a message together are bounded.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import MESSAGE_ELEMENTS_COUNT_MAX, STRING_BYTES_MAX
from oncelog.protocol import wire
from oncelog.protocol.codec_source import Source
from oncelog.protocol.fields import FieldShape, shapes

ERRORS: Final[dict[int, ErrorCode]] = {int(error): error for error in ErrorCode}
NULL_MARKER: Final = 0xFF
TAGGED_NULL_MARKER: Final = 0
PRESENT_MARKER: Final = 1
"""The byte in front of a nullable struct (KIP-893); any other than the null marker means present.

A tagged struct has another null marker, which is never written: a null one is absent.
"""

LAYOUTS: Final[dict[str, str]] = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "uuid": "16s",
}
"""The struct format of each kind of fixed size."""

_CHANGES: Final[dict[str, str]] = {
    "error_code": "errors_get({0}, unknown_server_error)",
    "uuid": "uuid_of({0})",
}
"""The expression that converts an unpacked value, where a kind needs one."""


def _has_arrays(cls: type, version: int) -> bool:
    return any(
        shape.is_array or (shape.inner is not None and _has_arrays(shape.inner, version))
        for shape in shapes(cls, version)
    )


def tagged_shape(shape: FieldShape) -> FieldShape:
    """Return how a tagged field is encoded within its tag.

    A null value is absent, so a present one is not nullable; a struct keeps its marker.
    """
    is_struct = shape.inner is not None and not shape.is_array
    return shape._replace(is_nullable=shape.is_nullable and is_struct)


class ReaderSource:
    """The source of the function that reads a version of `cls`."""

    def __init__(
        self,
        cls: type,
        version: int,
        *,
        flexible: bool,
        elements_count_max: int = MESSAGE_ELEMENTS_COUNT_MAX,
    ) -> None:
        self.source = Source(
            *("read", "buffer", "position", "limit", "budget", "size", "count", "end"),
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
        self._version = version
        self._flexible = flexible
        self._elements_count_max = elements_count_max
        self._run: list[tuple[str, str]] = []
        """Layout and variable of the fields of fixed size that come next."""
        self._changes: list[str] = []
        """Lines to add once they are unpacked."""
        line, block = self.source.line, self.source.block
        with block("def read(buffer, position):"):
            line("limit = len(buffer)")
            if _has_arrays(cls, version):
                line(f"budget = {elements_count_max}")
            with block("try:"):
                self._entity(cls, "", "return ")
            with block(
                "except (IndexError, StructError, UnicodeDecodeError, OverflowError) as error:"
            ):
                line(f'raise malformed(f"{cls.__name__}: {{error}}") from error')

    def _entity(
        self, cls: type, prefix: str, before: str, after: str = "", *, has_tags: bool = True
    ) -> None:
        """Read a struct; `before` and `after` surround the call that creates its value."""
        carried = shapes(cls, self._version)
        variables = {shape.name: self.source.variable(prefix + shape.name) for shape in carried}
        tagged = []
        for shape in carried:
            if shape.tag is None:
                self._field(variables[shape.name], shape)
            else:
                tagged.append((variables[shape.name], shape))
        if tagged:
            self._tags(tagged, prefix)
        elif self._flexible and has_tags:
            self._skip_tags(prefix)
        self._unpack()
        arguments = [f"{name}={variable}" for name, variable in variables.items()]
        self.source.call(before, self.source.constant(cls.__name__, cls), arguments, after)

    def _field(self, variable: str, shape: FieldShape) -> None:
        if shape.is_single:
            self._single(variable, shape)
        elif shape.is_array:
            self._array(variable, shape)
        elif shape.inner is not None:
            self._nested(variable, shape, shape.inner)
        elif shape.kind == "string":
            self._string(variable, shape.is_nullable)
        elif shape.kind == "bytes":
            self._bytes(variable, shape.is_nullable)
        else:
            self._fixed(variable, shape)

    def _fixed(self, variable: str, shape: FieldShape) -> None:
        self._run.append((LAYOUTS[shape.kind], variable))
        if shape.kind in _CHANGES:
            self._changes.append(f"{variable} = {_CHANGES[shape.kind].format(variable)}")

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
        """Read a length or count; -1 means null.

        A compact one is stored plus one, usually in one byte.
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
        """Lines added within apply only if the value is not null."""
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

    def _single(self, variable: str, shape: FieldShape) -> None:
        """Read the only element of an array that has no count."""
        if shape.inner is not None:
            self._entity(shape.inner, f"{shape.name}_", f"{variable} = (", ",)", has_tags=False)
            return
        self._field(variable, shape._replace(is_array=False, is_single=False))
        self._unpack()
        self.source.line(f"{variable} = ({variable},)")

    def _array(self, variable: str, shape: FieldShape) -> None:
        line = self.source.line
        self._length("count", "i")
        with self._unless("count == -1", variable, shape.is_nullable):
            # Each element takes at least one byte.
            self._refuse_if(
                "not 0 <= count <= limit - position",
                f"{variable} with {{count}} elements, {{limit - position}} bytes left",
            )
            line("budget -= count")
            self._refuse_if("budget < 0", f"more than {self._elements_count_max} elements")
            layout = LAYOUTS.get(shape.kind)
            if layout and shape.kind not in _CHANGES:
                line(f'{variable} = unpack_from(f">{{count}}{layout}", buffer, position)')
                line(f"position += {struct.calcsize('>' + layout)} * count")
                return
            line(f"{variable} = []")
            with self.source.block("for _ in range(count):"):
                self._element(variable, shape)
            line(f"{variable} = tuple({variable})")

    def _element(self, variable: str, shape: FieldShape) -> None:
        if shape.inner is not None:
            self._entity(
                shape.inner,
                f"{shape.name}_",
                f"{variable}.append(",
                ")",
                has_tags=not shape.is_bare,
            )
            return
        item = self.source.variable(f"{variable}_item")
        # For arrays of primitives nullability is that of the array.
        self._field(item, shape._replace(is_array=False, is_nullable=False))
        self._unpack()
        self.source.line(f"{variable}.append({item})")

    def _nested(self, variable: str, shape: FieldShape, inner: type) -> None:
        marker = self.source.variable(f"{variable}_marker")
        if shape.is_nullable:
            self._run.append(("B", marker))
        self._unpack()
        null = NULL_MARKER if shape.tag is None else TAGGED_NULL_MARKER
        with self._unless(f"{marker} == {null}", variable, shape.is_nullable):
            self._entity(inner, f"{shape.name}_", f"{variable} = ")

    def _skip_tags(self, prefix: str) -> None:
        """Skip the tagged fields of a struct that has no known ones; mostly their count is 0."""
        tags = self.source.variable(f"{prefix}tags")
        self._run.append(("B", tags))
        self._unpack()
        with self.source.block(f"if {tags}:"):
            self.source.line("position = skip_tags(buffer, position - 1)")

    def _tags(self, tagged: list[tuple[str, FieldShape]], prefix: str) -> None:
        """Read the known tagged fields, and skip the others."""
        self._unpack()
        line, block = self.source.line, self.source.block
        for variable, shape in tagged:
            default = self.source.constant(f"{variable}_default", shape.default)
            line(f"{variable} = {default}")
        tag = self.source.variable(f"{prefix}tag")
        end = self.source.variable(f"{prefix}tag_end")
        with block(f"for {tag}, position, {end} in iter_tags(buffer, position):"):
            for variable, shape in tagged:
                with block(f"if {tag} == {shape.tag}:"):
                    self._field(variable, tagged_shape(shape))
                    self._unpack()
                    self._refuse_if(
                        f"position != {end}",
                        f"{variable} ends at {{position}}, its tag at {{{end}}}",
                    )
            line(f"position = {end}")
