"""What the fields of kio's classes are, and values carried from one version's classes to another's.

kio has a class per message and version, all alike but for the fields that came and went. A
converter from one class to another is derived once from their fields; a field that the source lacks
takes the schema's default. Only messages whose shape changed are converted (the hooks of
`oncelog.protocol.versions`): any other is read into the newest class at once (`schema`). This
module must not know any particular message.
"""

import datetime
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

NO_TIME: Final[Any] = datetime.timedelta(0)
NO_RETENTION: Final[Any] = datetime.timedelta(milliseconds=-1)
"""An offset commit that leaves its retention to the broker (versions 2 to 4)."""

Converter = Callable[[Any], Any]


class FieldShape(NamedTuple):
    """What a reader, writer or converter needs to know of a field."""

    name: str
    is_array: bool
    is_nullable: bool
    inner: type
    """The element's class: a dataclass for nested values, otherwise the primitive."""
    kafka_type: str | None = None
    """How kio names a primitive's encoding; not known of classes of ours."""
    tag: int | None = None
    """The number of a tagged field (KIP-482)."""


@cache
def shapes(cls: type) -> tuple[FieldShape, ...]:
    """The fields of a kio class, or of one of ours that stands in for it."""
    return tuple(shape_of(field) for field in fields(cls))


def shape_of(field: Field[Any]) -> FieldShape:
    """The shape of one field."""
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


@cache
def defaults(cls: type) -> dict[str, Any]:
    """The value of each field that a message of an older version does not carry."""
    values = {}
    for field in fields(cls):
        if field.default is not MISSING:
            values[field.name] = field.default
        else:
            values[field.name] = _implicit_default(shape_of(field))
    return values


def _implicit_default(shape: FieldShape) -> Any:
    if shape.is_array:
        return ()
    if shape.is_nullable:
        return None
    if is_dataclass(shape.inner):
        return shape.inner(**defaults(shape.inner))
    if issubclass(shape.inner, ErrorCode):
        return ErrorCode.none
    for kind, value in _ZEROS:
        if issubclass(shape.inner, kind):
            return value
    raise TypeError(f"no default for {shape}")


_ZEROS: tuple[tuple[type, Any], ...] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (datetime.timedelta, datetime.timedelta(0)),
    (datetime.datetime, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
    (UUID, None),
)


@cache
def converter(source: type, target: type) -> Converter:
    """A function from instances of `source` to instances of `target`."""
    if source is target:
        return _same
    have = {shape.name: shape for shape in shapes(source)}
    plan: list[tuple[str, Converter | None]] = []
    absent: dict[str, Any] = {}
    for shape in shapes(target):
        ours = have.get(shape.name)
        if ours is None:
            absent[shape.name] = defaults(target)[shape.name]
        elif is_dataclass(ours.inner):
            change = converter(ours.inner, shape.inner)
            wrap = _array if ours.is_array else _nested
            plan.append((shape.name, None if change is _same else wrap(change)))
        else:
            plan.append((shape.name, None))

    def convert(value: Any) -> Any:
        values = dict(absent)
        for name, change in plan:
            item = getattr(value, name)
            values[name] = item if change is None else change(item)
        return target(**values)

    return convert


def _nested(change: Converter) -> Converter:
    return lambda item: None if item is None else change(item)


def _array(change: Converter) -> Converter:
    return lambda items: None if items is None else tuple([change(item) for item in items])


def _same(value: Any) -> Any:
    return value
