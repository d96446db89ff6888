"""Reads any message from the description that kio's dataclasses give of it.

kio's own readers are not used, though they are faster: they allocate by the counts that a peer
sends (five bytes can abort the process), and they fail on tagged fields that they do not know,
which KIP-482 has a reader skip. Here every length is checked against the bytes that are left, and
the elements of all arrays of a message together are bounded (`MESSAGE_ELEMENTS_COUNT_MAX`).

A reader is compiled once per class into a plan of field readers. It raises `ProtocolError`
(invalid_request) and nothing else.
"""

import datetime
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Any, Final

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import MESSAGE_ELEMENTS_COUNT_MAX
from oncelog.protocol import wire
from oncelog.protocol.conversion import FieldShape, defaults, shape_of
from oncelog.protocol.wire import Buffer, malformed

Budget = list[int]
"""One number: how many array elements the message may still hold."""

FieldReader = Callable[[Buffer, int, Budget], tuple[Any, int]]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NULL_MARKER: Final = 0xFF


def read_message(cls: type, buffer: Buffer, position: int) -> Any:
    """Read an instance of a kio class at `position`. Bytes after it are not looked at."""
    try:
        return _entity_reader(cls)(buffer, position, [MESSAGE_ELEMENTS_COUNT_MAX])[0]
    except (IndexError, StructError, UnicodeDecodeError, OverflowError) as error:
        raise malformed(f"{cls.__name__}: {error}") from error


@cache
def _entity_reader(cls: type) -> FieldReader:
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, FieldReader]] = []
    tagged: dict[int, tuple[str, FieldReader]] = {}
    absent: dict[str, Any] = {}
    for field in fields(cls):
        shape = shape_of(field)
        if "tag" in field.metadata:
            # A tagged field is null by its absence; what is present is not nullable.
            reader = _field_reader(field, shape._replace(is_nullable=False), flexible)
            tagged[field.metadata["tag"]] = (field.name, reader)
            absent[field.name] = defaults(cls)[field.name]
        else:
            plain.append((field.name, _field_reader(field, shape, flexible)))

    def read(buffer: Buffer, position: int, budget: Budget) -> tuple[Any, int]:
        values = dict(absent)
        for name, read_field in plain:
            values[name], position = read_field(buffer, position, budget)
        if flexible:
            if buffer[position] == 0:
                position += 1
            else:
                position = _read_tags(buffer, position, budget, tagged, values)
        return cls(**values), position

    return read


def _read_tags(
    buffer: Buffer,
    position: int,
    budget: Budget,
    tagged: dict[int, tuple[str, FieldReader]],
    values: dict[str, Any],
) -> int:
    for number, start, end in wire.iter_tags(buffer, position):
        known = tagged.get(number)
        if known is not None:
            name, read_field = known
            values[name], stop = read_field(buffer, start, budget)
            if stop != end:
                raise malformed(f"{name} takes {stop - start} bytes of {end - start}")
        position = end
    return position


def _field_reader(field: Field[Any], shape: FieldShape, flexible: bool) -> FieldReader:
    if shape.is_array:
        if is_dataclass(shape.inner):
            element = _entity_reader(shape.inner)
        else:
            # For arrays of primitives nullability is that of the array.
            element = _primitive_reader(field.metadata["kafka_type"], flexible, False)
        return _array_reader(field.name, element, flexible, shape.is_nullable)
    if is_dataclass(shape.inner):
        entity = _entity_reader(shape.inner)
        return _nullable_entity_reader(entity) if shape.is_nullable else entity
    return _primitive_reader(field.metadata["kafka_type"], flexible, shape.is_nullable)


def _array_reader(name: str, element: FieldReader, flexible: bool, nullable: bool) -> FieldReader:
    def read(buffer: Buffer, position: int, budget: Budget) -> tuple[Any, int]:
        if flexible:
            count, position = wire.read_uvarint(buffer, position)
            count -= 1
        else:
            count = wire.INT32.unpack_from(buffer, position)[0]
            position += 4
        if count == -1 and nullable:
            return None, position
        if not 0 <= count <= len(buffer) - position:
            raise malformed(f"{name} with {count} elements, {len(buffer) - position} bytes left")
        budget[0] -= count
        if budget[0] < 0:
            raise malformed(f"more than {MESSAGE_ELEMENTS_COUNT_MAX} elements")
        items = []
        for _ in range(count):
            item, position = element(buffer, position, budget)
            items.append(item)
        return tuple(items), position

    return read


def _nullable_entity_reader(entity: FieldReader) -> FieldReader:
    """A nullable struct follows a byte that tells whether it is there (KIP-893)."""

    def read(buffer: Buffer, position: int, budget: Budget) -> tuple[Any, int]:
        if buffer[position] == _NULL_MARKER:
            return None, position + 1
        return entity(buffer, position + 1, budget)

    return read


def _number_reader(layout: str, change: Callable[[Any], Any] | None = None) -> FieldReader:
    compiled = Struct(layout)
    unpack, size = compiled.unpack_from, compiled.size

    def read(buffer: Buffer, position: int, _budget: Budget) -> tuple[Any, int]:
        return unpack(buffer, position)[0], position + size

    def read_changed(buffer: Buffer, position: int, _budget: Budget) -> tuple[Any, int]:
        return change(unpack(buffer, position)[0]), position + size  # type: ignore[misc]

    return read if change is None else read_changed


def _without_budget(read: Callable[[Buffer, int], tuple[Any, int]]) -> FieldReader:
    return lambda buffer, position, _budget: read(buffer, position)


def error_of(code: int) -> ErrorCode:
    """The error of a number; a number newer than we are is unknown_server_error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error


def _timedelta(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds)


def _datetime(milliseconds: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=milliseconds)


def _nullable_datetime(milliseconds: int) -> datetime.datetime | None:
    return None if milliseconds == -1 else _datetime(milliseconds)


def _read_bytes(flexible: bool, nullable: bool) -> FieldReader:
    def read(buffer: Buffer, position: int, _budget: Budget) -> tuple[bytes | None, int]:
        if flexible:
            size, position = wire.read_uvarint(buffer, position)
            size -= 1
        else:
            size = wire.INT32.unpack_from(buffer, position)[0]
            position += 4
        if size == -1 and nullable:
            return None, position
        end = position + size
        if size < 0 or end > len(buffer):
            raise malformed(f"{size} bytes, {len(buffer) - position} left")
        with memoryview(buffer) as view:
            return bytes(view[position:end]), end

    return read


_NUMBERS: Final[dict[str, FieldReader]] = {
    "int8": _number_reader(">b"),
    "int16": _number_reader(">h"),
    "int32": _number_reader(">i"),
    "int64": _number_reader(">q"),
    "uint8": _number_reader(">B"),
    "uint16": _number_reader(">H"),
    "uint32": _number_reader(">I"),
    "uint64": _number_reader(">Q"),
    "float64": _number_reader(">d"),
    "bool": _number_reader(">?"),
    "error_code": _number_reader(">h", error_of),
    "timedelta_i32": _number_reader(">i", _timedelta),
    "timedelta_i64": _number_reader(">q", _timedelta),
    "uuid": _without_budget(wire.read_uuid),
}

_STRINGS: Final[dict[tuple[bool, bool], FieldReader]] = {
    (False, False): _without_budget(wire.read_string),
    (False, True): _without_budget(wire.read_nullable_string),
    (True, False): _without_budget(wire.read_compact_string),
    (True, True): _without_budget(wire.read_compact_nullable_string),
}


def _primitive_reader(kafka_type: str, flexible: bool, nullable: bool) -> FieldReader:
    number = _NUMBERS.get(kafka_type)
    if number is not None:
        return number
    if kafka_type == "string":
        return _STRINGS[flexible, nullable]
    if kafka_type in ("bytes", "records"):
        return _read_bytes(flexible, nullable)
    if kafka_type == "datetime_i64":
        return _number_reader(">q", _nullable_datetime if nullable else _datetime)
    raise TypeError(f"no reader for {kafka_type}")
