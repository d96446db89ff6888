"""Records as text: what `oncelog consume` prints and `oncelog produce` reads.

Pure: bytes and values in, bytes and values out. One JSON object per record is read back as it was
written, so ``consume --json | produce --format json`` copies a topic: text is a JSON string, bytes
that are not UTF-8 are ``{"base64": "..."}``, and a missing key or value is null.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from oncelog.client import ConsumerRecord

__all__ = [
    "EPOCH",
    "Columns",
    "InputRecord",
    "RecordError",
    "compile_template",
    "for_terminal",
    "format_columns",
    "format_json",
    "iso_time",
    "parse_json",
    "parse_raw",
    "unescape",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Headers = tuple[tuple[str, bytes | None], ...]

NULL: Final = b"null"
"""What stands for a missing key or value in text, as in Kafka's console consumer."""

_TIMESTAMP_NAMES: Final = {0: "CreateTime", 1: "LogAppendTime"}


class RecordError(ValueError):
    """A line that is no record; the message says why."""


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record as read from a line. None leaves the choice to the producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """What stands before the value of each record, and what separates it."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False
    separator: bytes = b"\t"


# --- out ------------------------------------------------------------------------------


def format_columns(columns: Columns, record: ConsumerRecord) -> tuple[bytes, bytes]:
    """(What stands before the value, value), in the order of Kafka's console consumer."""
    parts: list[bytes] = []
    if columns.timestamp:
        kind = _TIMESTAMP_NAMES.get(record.timestamp_type, "Time")
        parts.append(f"{kind}:{record.timestamp_ms}".encode())
    if columns.partition:
        parts.append(f"Partition:{record.partition}".encode())
    if columns.offset:
        parts.append(f"Offset:{record.offset}".encode())
    if columns.headers:
        parts.append(_headers_text(record.headers))
    if columns.key:
        parts.append(NULL if record.key is None else record.key)
    before = b"".join(part + columns.separator for part in parts)
    return before, NULL if record.value is None else record.value


def _headers_text(headers: Headers) -> bytes:
    if not headers:
        return b"NO_HEADERS"
    return b",".join(
        _name_bytes(name) + b":" + (NULL if value is None else value) for name, value in headers
    )


def format_json(record: ConsumerRecord) -> bytes:
    """One JSON object on one line."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _to_json(record.key),
            "value": _to_json(record.value),
            "headers": [
                [_to_json(_name_bytes(name)), _to_json(value)] for name, value in record.headers
            ],
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


def _name_bytes(name: str) -> bytes:
    """A header's name as it is in the record: any bytes."""
    return name.encode("utf-8", "surrogateescape")


def _to_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


_FIELDS: Final[dict[str, Callable[[ConsumerRecord], bytes]]] = {
    "topic": lambda r: r.topic.encode(),
    "partition": lambda r: str(r.partition).encode(),
    "offset": lambda r: str(r.offset).encode(),
    "timestamp": lambda r: str(r.timestamp_ms).encode(),
    "time": lambda r: iso_time(r.timestamp_ms).encode(),
    "key": lambda r: NULL if r.key is None else r.key,
    "value": lambda r: NULL if r.value is None else r.value,
    "headers": lambda r: _headers_text(r.headers),
}

_TEMPLATE_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")


def compile_template(text: str) -> Callable[[ConsumerRecord], bytes]:
    r"""A template such as ``{partition}/{offset}\t{value}``, as a function of a record.

    ``{{`` and ``}}`` are braces; ``\t``, ``\n`` and the like are what they are in Python. Raises
    `ValueError` for an unknown field or a single brace.
    """
    pieces: list[bytes | Callable[[ConsumerRecord], bytes]] = []
    for match in _TEMPLATE_PIECE.finditer(unescape(text)):
        piece, name = match.group(), match.group(1)
        if name is not None:
            if name not in _FIELDS:
                raise ValueError(f"no field {{{name}}}; there are {', '.join(_FIELDS)}")
            pieces.append(_FIELDS[name])
        elif piece in ("{", "}"):
            raise ValueError(f"a single {piece}; write it twice to print it")
        else:
            pieces.append((piece[0] if piece in ("{{", "}}") else piece).encode())
    return lambda record: b"".join(
        piece if isinstance(piece, bytes) else piece(record) for piece in pieces
    )


def iso_time(timestamp_ms: int) -> str:
    """Milliseconds since the epoch as a date and time in UTC; out of all range as they are."""
    try:
        # In whole numbers: a float of seconds loses a millisecond far in the future.
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def for_terminal(data: bytes) -> str:
    r"""Bytes of a record for a person's terminal.

    What is no text is shown as ``\x..``, and so is whatever would command the terminal: a record
    must not recolour the screen, or type.
    """
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


# --- in -------------------------------------------------------------------------------


def unescape(text: str) -> str:
    r"""``\t``, ``\n``, ``\x1f`` and the like as the characters they name."""
    if "\\" not in text:
        return text
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except UnicodeDecodeError:
        raise ValueError(f"{text!r} holds a backslash that escapes nothing") from None


def parse_raw(line: bytes, separator: bytes | None, null_marker: bytes | None) -> InputRecord:
    """A line as value, or as key and value. Raises `RecordError`."""
    if separator is None:
        return InputRecord(None, _or_null(line, null_marker))
    key, found, value = line.partition(separator)
    if not found:
        raise RecordError(f"no key separator {separator.decode('utf-8', 'backslashreplace')!r}")
    return InputRecord(_or_null(key, null_marker), _or_null(value, null_marker))


def _or_null(data: bytes, null_marker: bytes | None) -> bytes | None:
    return None if null_marker is not None and data == null_marker else data


def parse_json(line: bytes) -> InputRecord:
    """A line as `format_json` writes it; topic and offset are passed over.

    A value that is neither text nor null nor ``{"base64": ...}`` becomes its JSON text. Raises
    `RecordError`.
    """
    try:
        given = json.loads(line)
    except ValueError as error:
        raise RecordError(f"not JSON ({error})") from None
    if not isinstance(given, dict):
        raise RecordError("not a JSON object")
    if "value" not in given:
        raise RecordError('no "value"')
    return InputRecord(
        _from_json(given.get("key")),
        _from_json(given["value"]),
        _headers(given.get("headers")),
        _integer(given, "partition"),
        _integer(given, "timestamp"),
    )


def _from_json(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise RecordError('"base64" holds something else') from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(given: Any) -> Headers:
    if given is None:
        return ()
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list):
        raise RecordError('"headers" is neither an object nor a list of pairs')
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not _is_name(pair[0]):
            raise RecordError('"headers" holds something that is no [name, value] pair')
        name = pair[0] if isinstance(pair[0], str) else _from_json(pair[0]) or b""
        text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        headers.append((text, _from_json(pair[1])))
    return tuple(headers)


def _is_name(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and value.keys() == {"base64"})


def _integer(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise RecordError(f'"{name}" is not a whole number')
    return value
