"""What the fields of kio's classes are."""

from dataclasses import Field
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin


class FieldShape(NamedTuple):
    """What it takes to make a value of a field."""

    name: str
    is_array: bool
    is_nullable: bool
    inner: type
    """The element's class: a dataclass for nested values, otherwise the primitive."""
    kafka_type: str | None
    """How kio names a primitive's encoding."""
    tag: int | None


def shape_of(field: Field[Any]) -> FieldShape:
    kind: Any = field.type
    is_nullable = False
    if get_origin(kind) in (UnionType, Union):
        is_nullable = NoneType in get_args(kind)
        kind = next(part for part in get_args(kind) if part is not NoneType)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    encoding, tag = field.metadata.get("kafka_type"), field.metadata.get("tag")
    return FieldShape(field.name, is_array, is_nullable, kind, encoding, tag)
