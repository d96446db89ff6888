"""Writes the source of a writer of one message in one version (see `oncelog.protocol.codec`).

A null value of a field that is not nullable, or a value out of its field's range, raises
`MisfitError`: the caller built the message wrongly. The length of compact strings is not bounded.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from oncelog.core.errors import OncelogError
from oncelog.protocol import wire
from oncelog.protocol.codec_reader import LAYOUTS, NULL_MARKER, PRESENT_MARKER, tagged_shape
from oncelog.protocol.codec_source import Source
from oncelog.protocol.fields import FieldShape, shapes


class MisfitError(OncelogError, ValueError):
    """A value does not fit its field: the caller built the message wrongly."""


class WriterSource:
    """The source of the function that appends a version of `cls` to a bytearray.

    With `replaced` the function also takes a counter. It replaces the error codes other than NONE
    by this mapping, and counts what it writes. Errors in tagged fields are details of others: Kafka
    counts none of them.
    """

    def __init__(
        self,
        cls: type,
        version: int,
        *,
        flexible: bool,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        self.source = Source(
            *("write", "out", "message", "errors", "value", "items", "raw", "size"),
            NO_UUID_BYTES=wire.NO_UUID_BYTES,
            ONE_BYTE=wire.ONE_BYTE,
            StructError=struct.error,
            MisfitError=MisfitError,
            pack=struct.pack,
            tag=wire.tag,
            uvarint=wire.uvarint,
        )
        self._version = version
        self._flexible = flexible
        self._counts_errors = replaced is not None
        self._replaced = self.source.constant("replaced", replaced) if replaced else None
        self._out = "out"
        """The variable of the bytearray that is appended to."""
        self._run: list[tuple[str, str]] = []
        """Layout and expression of the fields of fixed size that come next."""
        line, block = self.source.line, self.source.block
        parameters = "out, message, errors" if self._counts_errors else "out, message"
        with block(f"def write({parameters}):"):
            with block("try:"):
                self._entity(cls, "message")
            with block(
                "except (StructError, AttributeError, IndexError, TypeError, ValueError) as error:"
            ):
                line(f'raise MisfitError(f"{cls.__name__}: {{error}}") from error')

    def _entity(self, cls: type, value: str, *, has_tags: bool = True) -> None:
        tagged = []
        for shape in shapes(cls, self._version):
            if shape.tag is None:
                self._field(f"{value}.{shape.name}", shape)
            else:
                tagged.append(shape)
        if tagged:
            self._tags(value, sorted(tagged, key=lambda shape: shape.tag or 0))
        elif self._flexible and has_tags:
            self._run.append(("x", ""))
        self._pack()

    def _field(self, value: str, shape: FieldShape) -> None:
        if shape.is_single:
            self._single(value, shape)
        elif shape.is_array:
            self._array(value, shape)
        elif shape.inner is not None:
            self._nested(value, shape, shape.inner)
        elif shape.kind == "string":
            self._string(value, shape.is_nullable)
        elif shape.kind == "bytes":
            self._bytes(value, shape.is_nullable)
        else:
            self._fixed(value, shape)

    def _named(self, value: str, wanted: str = "") -> str:
        """Return a variable with a value that is used more than once."""
        if value.isidentifier():
            return value
        name = self.source.variable(wanted or value.rpartition(".")[2])
        self.source.line(f"{name} = {value}")
        return name

    def _fixed(self, value: str, shape: FieldShape) -> None:
        if shape.kind == "uuid":
            uuid = self._named(value)
            value = f'NO_UUID_BYTES if {uuid} is None else {uuid}.int.to_bytes(16, "big")'
        elif shape.kind == "error_code" and self._counts_errors and self._out == "out":
            if self._replaced is not None:
                value = self._named(value)
            with self.source.block(f"if {value}:"):
                if self._replaced is not None:
                    self.source.line(f"{value} = {self._replaced}.get({value}, {value})")
                self.source.line(f"errors[{value}] += 1")
        self._run.append((LAYOUTS[shape.kind], value))

    def _pack(self) -> None:
        """Write the run of fields of fixed size that was collected."""
        layout = "".join(part for part, _ in self._run)
        values = [value for _, value in self._run if value]
        self._run.clear()
        if values:
            self.source.call(f"{self._out} += ", self.source.packer(layout), values)
        elif layout:
            self.source.line(f"{self._out} += {bytes(len(layout))!r}")

    def _length(self, value: str, layout: str) -> None:
        """Write a length or count. A compact one is stored plus one."""
        if not self._flexible:
            self._run.append((layout, value))
            self._pack()
            return
        self._pack()
        self.source.line(f"size = {value} + 1")
        self.source.line(f"{self._out} += ONE_BYTE[size] if size < 128 else uvarint(size)")

    @contextmanager
    def _unless_null(self, variable: str, layout: str, is_nullable: bool) -> Iterator[None]:
        """Lines added within apply only if the value is not null."""
        if not is_nullable:
            yield
            return
        self._pack()
        with self.source.block(f"if {variable} is None:"):
            null = b"\x00" if self._flexible else struct.pack(f">{layout}", -1)
            self.source.line(f"{self._out} += {null!r}")
        with self.source.block("else:"):
            yield

    def _string(self, value: str, is_nullable: bool) -> None:
        if is_nullable:
            self.source.line(f"value = {value}")
            value = "value"
        with self._unless_null("value", "h", is_nullable):
            self.source.line(f"raw = {value}.encode()")
            self._length("len(raw)", "h")
            self.source.line(f"{self._out} += raw")

    def _bytes(self, value: str, is_nullable: bool) -> None:
        self.source.line(f"raw = {value}")
        with self._unless_null("raw", "i", is_nullable):
            self._length("len(raw)", "i")
            self.source.line(f"{self._out} += raw")

    def _single(self, value: str, shape: FieldShape) -> None:
        """Write the only element of an array that has no count."""
        item = self._named(f"{value}[0]", shape.name + "_item")
        if shape.inner is not None:
            self._entity(shape.inner, item, has_tags=False)
        else:
            self._field(item, shape._replace(is_array=False, is_single=False))

    def _array(self, value: str, shape: FieldShape) -> None:
        self.source.line(f"items = {value}")
        with self._unless_null("items", "i", shape.is_nullable):
            self._length("len(items)", "i")
            layout = LAYOUTS.get(shape.kind)
            if layout and shape.kind != "uuid":
                self.source.line(f'{self._out} += pack(f">{{len(items)}}{layout}", *items)')
                return
            item = self.source.variable(value.rpartition(".")[2] + "_item")
            with self.source.block(f"for {item} in items:"):
                if shape.inner is not None:
                    self._entity(shape.inner, item, has_tags=not shape.is_bare)
                else:
                    # For arrays of primitives nullability is that of the array.
                    self._field(item, shape._replace(is_array=False, is_nullable=False))
                    self._pack()

    def _nested(self, value: str, shape: FieldShape, inner: type) -> None:
        name = self._named(value)
        if not shape.is_nullable:
            self._entity(inner, name)
            return
        self._pack()
        with self.source.block(f"if {name} is None:"):
            self.source.line(f"{self._out}.append({NULL_MARKER})")
        with self.source.block("else:"):
            self.source.line(f"{self._out}.append({PRESENT_MARKER})")
            self._entity(inner, name)

    def _tags(self, value: str, tagged: list[FieldShape]) -> None:
        """Write the tagged fields that differ from their default, in the order of their tags."""
        self._pack()
        line = self.source.line
        out = self._out
        tags = self.source.variable("tags")
        line(f"{tags} = []")
        for shape in tagged:
            name = self.source.variable(shape.name)
            default = self.source.constant(f"{shape.name}_default", shape.default)
            line(f"{name} = {value}.{shape.name}")
            with self.source.block(f"if {name} != {default}:"):
                self._out = self.source.variable(f"{name}_bytes")
                line(f"{self._out} = bytearray()")
                self._field(name, tagged_shape(shape))
                self._pack()
                line(f"{tags}.append(tag({shape.tag}, {self._out}))")
        self._out = out
        line(f'{out} += uvarint(len({tags})) + b"".join({tags})')
