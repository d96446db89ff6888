"""Carries kio's values from one version's classes to another's, field by field of the same name.

kio has a class per message and version, all alike but for the fields that came and went. A
converter from one class to another is derived once from their fields; a field that the source lacks
takes the schema's default. It also refuses a null where the schema allows none, which kio's readers
let through for arrays. It must not know any particular message: what names and shapes changed is in
`oncelog.protocol.versions`.
"""

import datetime
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

from oncelog.protocol.wire import malformed

Converter = Callable[[Any], Any]


class FieldShape(NamedTuple):
    """What a converter needs to know of a field."""

    name: str
    is_array: bool
    is_nullable: bool
    inner: type
    """The element's class: a dataclass for nested values, otherwise the primitive."""


@cache
def shapes(cls: type) -> tuple[FieldShape, ...]:
    """The fields of a kio class, or of one of ours that stands in for it."""
    return tuple(_shape(field) for field in fields(cls))


def _shape(field: Field[Any]) -> FieldShape:
    kind: Any = field.type
    is_nullable = False
    if get_origin(kind) in (UnionType, Union):
        is_nullable = NoneType in get_args(kind)
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is tuple:
        return FieldShape(field.name, True, is_nullable, get_args(kind)[0])
    return FieldShape(field.name, False, is_nullable, kind)


@cache
def defaults(cls: type) -> dict[str, Any]:
    """The value of each field that a message of an older version does not carry."""
    values = {}
    for field in fields(cls):
        if field.default is not MISSING:
            values[field.name] = field.default
        else:
            values[field.name] = _implicit_default(_shape(field))
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
    (UUID, None),
)


@cache
def converter(source: type, target: type) -> Converter:
    """A function from instances of `source` to instances of `target`.

    It raises `ProtocolError` (invalid_request) on a null array that the schema does not allow.
    """
    if source is target:
        return _checker(target)
    have = {shape.name: shape for shape in shapes(source)}
    plan: list[tuple[str, Converter | None]] = []
    absent: dict[str, Any] = {}
    for shape in shapes(target):
        ours = have.get(shape.name)
        if ours is None:
            absent[shape.name] = defaults(target)[shape.name]
        elif ours.is_array:
            plan.append((shape.name, _array(ours, shape)))
        elif is_dataclass(ours.inner):
            plan.append((shape.name, _nested(converter(ours.inner, shape.inner))))
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


def _array(source: FieldShape, target: FieldShape) -> Converter:
    change = converter(source.inner, target.inner) if is_dataclass(source.inner) else None
    name, nullable = source.name, source.is_nullable

    def convert(items: Any) -> Any:
        if items is None:
            if not nullable:
                raise malformed(f"{name} may not be null")
            return None
        return items if change is None else tuple([change(item) for item in items])

    return convert


@cache
def _checker(cls: type) -> Converter:
    """Checks nulls only, and hands on the same value."""
    plan: list[tuple[str, bool, Converter | None]] = []
    for shape in shapes(cls):
        inner = _checker(shape.inner) if is_dataclass(shape.inner) else None
        if shape.is_array:
            plan.append((shape.name, shape.is_nullable, None if inner is _same else inner))
    if not plan:
        return _same

    def check(value: Any) -> Any:
        for name, nullable, inner in plan:
            items = getattr(value, name)
            if items is None:
                if not nullable:
                    raise malformed(f"{name} may not be null")
            elif inner is not None:
                for item in items:
                    inner(item)
        return value

    return check


def _same(value: Any) -> Any:
    return value
