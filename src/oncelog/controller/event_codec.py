"""Encodes events and their replies for another broker, as JSON by the types of their fields.

Strict: what is read has the fields that its type names, each of its type. Anything else is one
error, `MalformedEvent`, because the bytes come from a connection.

While a cluster is upgraded, brokers of two versions send each other events. A field that came later
than its class is in `LATER_FIELDS`, and left out where it has its default, so that a version before
it reads all that it can carry out. A field that the reader does not know makes an event one that is
refused, for it asks for what this version cannot do; in a reply it is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from oncelog.controller import events
from oncelog.controller.decision import ControllerEvent
from oncelog.core.cluster_limits import (
    CONTROLLER_EVENT_BYTES_MAX,
    CONTROLLER_EVENT_LISTS_COUNT_MAX,
)
from oncelog.core.errors import OncelogError
from oncelog.core.limits import INT64_MAX
from oncelog.core.secret import Secret

__all__ = [
    "MalformedEvent",
    "UnknownEvent",
    "decode_event",
    "decode_reply",
    "encode_event",
    "encode_reply",
]

ReplyT = TypeVar("ReplyT")

LATER_FIELDS: Final[Mapping[str, Any]] = {
    "adding": [],
    "coordinators": [],
    "removed": [],
    "removing": [],
    "unknown_fields": "",
}
"""By name the fields that a version before this one does not know, with their defaults as JSON."""

_EVENTS: Final[Mapping[str, Hashable]] = {
    name: cast("Hashable", found)
    for name, found in vars(events).items()
    if isinstance(found, type)
    and issubclass(found, ControllerEvent)
    and found is not ControllerEvent
}


class MalformedEvent(OncelogError):  # noqa: N818 - names what was received
    """Bytes that are no event, or no reply to it."""


class UnknownEvent(MalformedEvent):
    """An event that this version cannot carry out: a newer one may know it."""


class _UnknownField(ValueError):  # noqa: N818 - names what was received
    pass


def encode_event(event: ControllerEvent[ReplyT]) -> bytes:
    """Encode an event with its name. Raises `MalformedEvent` when it is too large."""
    name = type(event).__name__
    return _bytes([name, _codec(_EVENTS[name]).encode(event)])


def decode_event(data: bytes | memoryview) -> ControllerEvent[object]:
    """Decode an event. Raises `MalformedEvent`."""
    match _json(data):
        case [str() as name, value] if name in _EVENTS:
            return cast("ControllerEvent[object]", _decoded(_EVENTS[name], value))
        case [str() as name, _]:
            raise UnknownEvent(f"no event that this version knows: {name:.80}")
    raise MalformedEvent("no event")


def encode_reply(event: ControllerEvent[ReplyT], reply: ReplyT) -> bytes:
    """Encode the reply to an event. Raises `MalformedEvent` when it is too large."""
    return _bytes(_codec(_reply_type(event)).encode(reply))


def decode_reply(event: ControllerEvent[ReplyT], data: bytes | memoryview) -> ReplyT:
    """Decode the reply to an event. Raises `MalformedEvent`."""
    return cast("ReplyT", _decoded(_reply_type(event), _json(data), passes_over=True))


def _reply_type(event: ControllerEvent[ReplyT]) -> Hashable:
    (base,) = vars(type(event))["__orig_bases__"]
    (reply,) = _parts(base)
    return reply


def _bytes(value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    if len(data) > CONTROLLER_EVENT_BYTES_MAX:
        raise MalformedEvent(f"{len(data)} bytes, at most {CONTROLLER_EVENT_BYTES_MAX}")
    return data


def _json(data: bytes | memoryview) -> object:
    if len(data) > CONTROLLER_EVENT_BYTES_MAX:
        raise MalformedEvent(f"{len(data)} bytes, at most {CONTROLLER_EVENT_BYTES_MAX}")
    text = bytes(data)
    if text.count(b"[") + text.count(b"{") > CONTROLLER_EVENT_LISTS_COUNT_MAX:
        raise MalformedEvent(f"more than {CONTROLLER_EVENT_LISTS_COUNT_MAX} lists and objects")
    try:
        found: object = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"no JSON ({error})") from error
    return found


def _without_repeats(pairs: Sequence[tuple[Hashable, object]]) -> dict[Hashable, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is there twice")
    return found


def _decoded(kind: Hashable, value: object, *, passes_over: bool = False) -> object:
    try:
        return _codec(kind, passes_over).decode(value)
    except _UnknownField as error:
        raise UnknownEvent(str(error)) from error
    except ValueError as error:
        raise MalformedEvent(str(error)) from error


class _Codec(NamedTuple):
    """How values of one type become JSON, and back; `decode` raises `ValueError`."""

    encode: Callable[[object], object]
    decode: Callable[[object], object]


_Make = Callable[[Iterable[object]], object]


def _parts(kind: object) -> tuple[Hashable, ...]:
    return get_args(kind)


@cache
def _codec(kind: Hashable, passes_over: bool = False) -> _Codec:
    origin: object = get_origin(kind)
    parts = _parts(kind)
    if origin in (Union, UnionType):
        return _optional(parts, passes_over)
    if origin is tuple and parts[-1] is not Ellipsis:
        return _fixed(parts, passes_over)
    if origin in (tuple, Sequence):
        return _many(tuple, parts[0], passes_over)
    if origin in (frozenset, Set):
        return _many(frozenset, parts[0], passes_over)
    if origin is Mapping:
        return _mapping(parts[0], parts[1], passes_over)
    if isinstance(kind, type):
        return _of_class(kind, passes_over)
    raise TypeError(f"no value of an event: {kind}")


def _of_class(kind: type[object], passes_over: bool) -> _Codec:
    if kind in (str, int, bool):
        return _Codec(lambda value: value, lambda value: _scalar(kind, value))
    if kind is Secret:
        return _Codec(
            lambda value: cast("Secret", value).value,
            lambda value: Secret(cast("str", _scalar(str, value))),
        )
    if kind is UUID:
        return _Codec(str, _uuid)
    if issubclass(kind, IntEnum):
        return _Codec(
            lambda value: int(cast("int", value)),
            lambda value: kind(cast("int", _scalar(int, value))),
        )
    if is_dataclass(kind):
        return _record(kind, [field.name for field in fields(kind)], passes_over)
    if issubclass(kind, tuple):
        names: Iterable[str] = vars(kind)["_fields"]
        return _record(kind, names, passes_over)
    raise TypeError(f"no value of an event: {kind}")


def _scalar(kind: type[object], value: object) -> object:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} where {kind.__name__} belongs")
    if isinstance(value, int) and abs(value) > INT64_MAX:
        raise ValueError("a number of more than 64 bits")
    return value


def _uuid(value: object) -> UUID:
    found = UUID(str(value))
    if str(found) != value:
        raise ValueError(f"no UUID: {value!r:.80}")
    return found


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} where a list belongs")
    found: list[object] = value
    return found


def _optional(kinds: Sequence[Hashable], passes_over: bool) -> _Codec:
    (kind,) = set(kinds) - {NoneType}
    inner = _codec(kind, passes_over)
    return _Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
    )


def _fixed(kinds: Sequence[Hashable], passes_over: bool) -> _Codec:
    codecs = [_codec(kind, passes_over) for kind in kinds]

    def encode(value: object) -> object:
        parts = cast("Iterable[object]", value)
        return [codec.encode(part) for codec, part in zip(codecs, parts, strict=True)]

    def decode(value: object) -> object:
        parts = _list(value)
        return tuple(codec.decode(part) for codec, part in zip(codecs, parts, strict=True))

    return _Codec(encode, decode)


def _many(make: _Make, kind: Hashable, passes_over: bool) -> _Codec:
    inner = _codec(kind, passes_over)
    return _Codec(
        lambda value: [inner.encode(part) for part in cast("Iterable[object]", value)],
        lambda value: make([inner.decode(part) for part in _list(value)]),
    )


def _mapping(key: Hashable, kind: Hashable, passes_over: bool) -> _Codec:
    """As a list of pairs: a key may be anything."""
    keys, values = _codec(key, passes_over), _codec(kind, passes_over)

    def encode(value: object) -> object:
        found = cast("Mapping[object, object]", value)
        return [[keys.encode(one), values.encode(found[one])] for one in found]

    def decode(value: object) -> object:
        pairs = [_list(pair) for pair in _list(value)]
        return _without_repeats([(keys.decode(one), values.decode(other)) for one, other in pairs])

    return _Codec(encode, decode)


def _record(kind: type[object], names: Iterable[str], passes_over: bool) -> _Codec:
    hints: Mapping[str, Hashable] = get_type_hints(kind)
    codecs = {name: _codec(hints[name], passes_over) for name in names}
    getters = {name: attrgetter(name) for name in codecs}
    needed = codecs.keys() - LATER_FIELDS.keys()

    def encode(value: object) -> object:
        found = {name: codec.encode(getters[name](value)) for name, codec in codecs.items()}
        for name in codecs.keys() & LATER_FIELDS.keys():
            if found[name] == LATER_FIELDS[name]:
                del found[name]
        return found

    def decode(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.80} where {kind.__name__} belongs")
        parts: Mapping[str, object] = value
        given = parts.keys() & codecs.keys() if passes_over else parts.keys()
        if not needed <= given:
            raise ValueError(f"{value!r:.80} where {kind.__name__} belongs")
        if unknown := given - codecs.keys():
            raise _UnknownField(f"no field of {kind.__name__} that this version knows: {unknown}")
        return kind(**{name: codecs[name].decode(parts[name]) for name in given})

    return _Codec(encode, decode)
