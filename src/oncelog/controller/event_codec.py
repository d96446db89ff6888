"""Encodes events and their replies for another broker, as JSON by the types of their fields.

Strict: what is read has exactly the fields that its type names, each of its type. Anything else is
one error, `MalformedEvent`, because the bytes come from a connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from oncelog.controller import events
from oncelog.controller.decision import ControllerEvent
from oncelog.core.errors import OncelogError
from oncelog.core.limits import CONTROLLER_EVENT_BYTES_MAX, INT64_MAX

__all__ = ["MalformedEvent", "decode_event", "decode_reply", "encode_event", "encode_reply"]

ReplyT = TypeVar("ReplyT")

_EVENTS: Final[Mapping[str, type[ControllerEvent[Any]]]] = {
    name: found
    for name in events.__all__
    if issubclass(found := getattr(events, name), ControllerEvent)
}


class MalformedEvent(OncelogError):  # noqa: N818 - names what was received
    """Bytes that are no event, or no reply to it."""


def encode_event(event: ControllerEvent[Any]) -> bytes:
    """Encode an event with its name. Raises `MalformedEvent` when it is too large."""
    kind: Any = type(event)
    return _bytes([kind.__name__, _codec(kind).encode(event)])


def decode_event(data: bytes | memoryview) -> ControllerEvent[Any]:
    """Decode an event. Raises `MalformedEvent`."""
    match _json(data):
        case [str() as name, value] if name in _EVENTS:
            event: ControllerEvent[Any] = _decoded(_EVENTS[name], value)
            return event
    raise MalformedEvent("no event that this version knows")


def encode_reply(event: ControllerEvent[ReplyT], reply: ReplyT) -> bytes:
    """Encode the reply to an event. Raises `MalformedEvent` when it is too large."""
    return _bytes(_codec(_reply_type(type(event))).encode(reply))


def decode_reply(event: ControllerEvent[ReplyT], data: bytes | memoryview) -> ReplyT:
    """Decode the reply to an event. Raises `MalformedEvent`."""
    reply: ReplyT = _decoded(_reply_type(type(event)), _json(data))
    return reply


def _reply_type(kind: type[ControllerEvent[Any]]) -> Any:
    (base,) = (b for b in kind.__orig_bases__ if get_origin(b) is ControllerEvent)  # type: ignore[attr-defined]
    (reply,) = get_args(base)
    return reply


def _bytes(value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    if len(data) > CONTROLLER_EVENT_BYTES_MAX:
        raise MalformedEvent(f"{len(data)} bytes, at most {CONTROLLER_EVENT_BYTES_MAX}")
    return data


def _json(data: bytes | memoryview) -> object:
    if len(data) > CONTROLLER_EVENT_BYTES_MAX:
        raise MalformedEvent(f"{len(data)} bytes, at most {CONTROLLER_EVENT_BYTES_MAX}")
    try:
        found: object = json.loads(bytes(data), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"no JSON ({error})") from error
    return found


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is there twice")
    return found


def _decoded(kind: Any, value: object) -> Any:
    try:
        return _codec(kind).decode(value)
    except (ValueError, TypeError) as error:
        raise MalformedEvent(str(error)) from error


class _Codec(NamedTuple):
    """How values of one type become JSON, and back; `decode` raises `ValueError`."""

    encode: Callable[[Any], object]
    decode: Callable[[Any], Any]


@cache
def _codec(kind: Any) -> _Codec:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _optional(kind, args)
    if origin is tuple and args[-1] is not Ellipsis:
        return _fixed(args)
    if origin in (tuple, Sequence):
        return _many(tuple, args[0])
    if origin in (frozenset, Set):
        return _many(frozenset, args[0])
    if origin is Mapping:
        return _mapping(*args)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        # An IntEnum of the protocol may be another by now: its number is what it is.
        values = _scalar(int) if issubclass(kind, IntEnum) else _scalar(str)
        return _Codec(lambda one: one.value, lambda value: kind(values.decode(value)))
    if kind is UUID:
        text = _scalar(str)
        return _Codec(str, lambda value: _uuid(text.decode(value)))
    if kind in (str, int, bool):
        return _scalar(kind)
    raise TypeError(f"no value of an event: {kind}")


def _uuid(text: str) -> UUID:
    found = UUID(text)
    if str(found) != text:
        raise ValueError(f"no UUID: {text!r}")
    return found


def _scalar(kind: type) -> _Codec:
    def decode(value: object) -> object:
        if type(value) is not kind:
            raise ValueError(f"{value!r:.80} where {kind.__name__} belongs")
        if isinstance(value, int) and abs(value) > INT64_MAX:
            raise ValueError("a number of more than 64 bits")
        return value

    return _Codec(lambda value: value, decode)


def _optional(kind: Any, args: tuple[Any, ...]) -> _Codec:
    kinds = [one for one in args if one is not NoneType]
    if len(kinds) != 1 or len(args) != 2:
        raise TypeError(f"no value of an event: {kind}")
    inner = _codec(kinds[0])
    return _Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
    )


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} where a list belongs")
    return value


def _fixed(kinds: tuple[Any, ...]) -> _Codec:
    codecs = [_codec(kind) for kind in kinds]
    return _Codec(
        lambda value: [codec.encode(one) for codec, one in zip(codecs, value, strict=True)],
        lambda value: tuple(
            codec.decode(one) for codec, one in zip(codecs, _list(value), strict=True)
        ),
    )


def _many(make: Callable[[list[Any]], Any], kind: Any) -> _Codec:
    inner = _codec(kind)
    return _Codec(
        lambda value: [inner.encode(one) for one in value],
        lambda value: make([inner.decode(one) for one in _list(value)]),
    )


def _mapping(key: Any, kind: Any) -> _Codec:
    """As a list of pairs: a key may be anything."""
    pairs = _many(list, tuple[key, kind])

    def decode(value: object) -> dict[Any, Any]:
        return _without_repeats(pairs.decode(value))

    return _Codec(lambda value: pairs.encode(value.items()), decode)


def _record(kind: Any) -> _Codec:
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    hints = get_type_hints(kind)
    codecs = {name: _codec(hints[name]) for name in names}

    def decode(value: object) -> object:
        if not isinstance(value, dict) or value.keys() != codecs.keys():
            raise ValueError(f"{value!r:.80} where {kind.__name__} belongs")
        return kind(**{name: codec.decode(value[name]) for name, codec in codecs.items()})

    return _Codec(
        lambda one: {name: codec.encode(getattr(one, name)) for name, codec in codecs.items()},
        decode,
    )
