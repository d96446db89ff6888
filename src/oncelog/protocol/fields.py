"""Declares the fields of the messages in `oncelog.protocol.messages`.

A message is one dataclass for all versions, as in Kafka's generated code: its fields in the order
of the wire, each annotated with its encoding and the versions that carry it. A field that a
version does not carry keeps its default when that version is read, and is left out when it is
written. Where versions differ in shape and not only in fields, the annotation says so too
(`Single`, `Bare`, `Leading`), so that no class of an old version is needed.

`oncelog.protocol.codec` makes the codecs from these declarations. This module must not know any
message.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from oncelog.core.errors import ErrorCode

__all__ = [
    "NEVER_NULL",
    "OWN_TAGS",
    "Bare",
    "Boolean",
    "Bytes",
    "Error",
    "FieldShape",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Leading",
    "Nullable",
    "RequestFor",
    "Single",
    "String",
    "Tag",
    "Uuid",
    "Versions",
    "shapes",
]


ResponseT = TypeVar("ResponseT")


class RequestFor(Generic[ResponseT]):
    """The base of a request's class; it tells the type checker the class of the response."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WireType:
    """The encoding of a value: the name of a type of Kafka's protocol guide."""

    name: str


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that carry a field. Without this annotation all do."""

    first: int
    last: int = 1 << 15


@dataclass(frozen=True, slots=True)
class Nullable:
    """The first version in which a field that can be None may be null on the wire."""

    first: int


NEVER_NULL: Final = Nullable(1 << 15)
"""None means that a version does not have the field; it is never null on the wire."""


@dataclass(frozen=True, slots=True)
class Tag:
    """The number of a tagged field (KIP-482)."""

    number: int


OWN_TAGS: Final = 10_000
"""Numbers of Oncelog's own tagged fields begin here; Kafka's begin at 0.

A peer skips a tagged field that it does not know (KIP-482). A broker sends these only to clients
that send one.
"""


@dataclass(frozen=True, slots=True)
class Single:
    """Up to this version the field is the array's only element, without a count."""

    last: int


@dataclass(frozen=True, slots=True)
class Bare:
    """Up to this version each element of the array is only its first field, without tags."""

    last: int


@dataclass(frozen=True, slots=True)
class Leading:
    """Up to this version the field precedes the others."""

    last: int


Int8 = Annotated[int, WireType("int8")]
Int16 = Annotated[int, WireType("int16")]
Int32 = Annotated[int, WireType("int32")]
Int64 = Annotated[int, WireType("int64")]
Float64 = Annotated[float, WireType("float64")]
Boolean = Annotated[bool, WireType("bool")]
String = Annotated[str, WireType("string")]
Bytes = Annotated[bytes, WireType("bytes")]
Error = Annotated[ErrorCode, WireType("error_code")]
Uuid = Annotated[UUID | None, WireType("uuid")]
"""None is Kafka's zero UUID."""


class FieldShape(NamedTuple):
    """The encoding of a field in one version."""

    name: str
    default: Any
    is_array: bool
    is_nullable: bool
    inner: type | None
    """The class of a nested value; None for one of Kafka's primitive types."""
    kind: str = ""
    """How a primitive is encoded."""
    tag: int | None = None
    is_single: bool = False
    is_bare: bool = False
    is_leading: bool = False


@cache
def shapes(cls: type, version: int) -> tuple[FieldShape, ...]:
    """The fields that a version carries, in their order on the wire."""
    hints = get_type_hints(cls, include_extras=True)
    found = [
        _shape(field.name, _default(field), hints[field.name], version)
        for field in fields(cls)
        if _is_carried(hints[field.name], version)
    ]
    return tuple(sorted(found, key=lambda shape: not shape.is_leading))


def _is_carried(hint: Any, version: int) -> bool:
    return all(
        mark.first <= version <= mark.last
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Versions)
    )


def _default(field: Any) -> Any:
    if field.default is MISSING:
        raise TypeError(f"{field.name} has no default")
    return field.default


def _shape(name: str, default: Any, hint: Any, version: int) -> FieldShape:
    kind, marks = _unwrapped(hint)
    is_nullable = False
    if get_origin(kind) in _UNIONS and "uuid" not in _kinds(marks):
        is_nullable = all(mark.first <= version for mark in marks if isinstance(mark, Nullable))
        kind, more = _unwrapped(next(part for part in get_args(kind) if part is not NoneType))
        marks += more
    is_array = get_origin(kind) is tuple
    if is_array:
        kind, more = _unwrapped(get_args(kind)[0])
        marks += more
    return FieldShape(
        name,
        default,
        is_array,
        is_nullable,
        kind if isinstance(kind, type) and is_dataclass(kind) else None,
        "".join(_kinds(marks)),
        next((mark.number for mark in marks if isinstance(mark, Tag)), None),
        *(
            any(isinstance(mark, wanted) and version <= mark.last for mark in marks)
            for wanted in (Single, Bare, Leading)
        ),
    )


_UNIONS: Final = (UnionType, Union)


def _kinds(marks: list[Any]) -> list[str]:
    return [mark.name for mark in marks if isinstance(mark, WireType)]


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    if get_origin(hint) is Annotated:
        return get_args(hint)[0], list(hint.__metadata__)
    return hint, []
