"""Reads and writes any message, by functions that are compiled from kio's descriptions of it.

kio has a dataclass per message and version, whose fields tell how each is encoded. At the first use
of a class this module writes the source of one straight-line function that reads it, or of one that
writes it, and compiles that once, as `dataclasses` does for `__init__`: a request costs a few calls
instead of several per field. A traceback shows the lines, so a reader can be followed like any
other code. What versions share of the wire is in `wire`; how the source comes about is in
`schema_reader` and `schema_writer`, which build on `schema_source`.

EndTxn shows what they make. Neighbours of fixed size are one `Struct` (`?` is spelled `o` in its
name, and `x` stands for a zero byte: no tagged fields); a compact length is one byte as a rule::

    def read(buffer, position):
        limit = len(buffer)
        try:
            size = buffer[position]
            position += 1
            if size > 127:
                size, position = read_uvarint(buffer, position - 1)
            size -= 1
            end = position + size
            if not 0 <= size <= 32767 or end > limit:
                raise malformed(f"string of {size} bytes")
            transactional_id = str(buffer[position:end], "utf-8")
            position = end
            producer_id, producer_epoch, committed, tags = unpack_qhoB(buffer, position)
            position += 12
            if tags:
                position = skip_tags(buffer, position - 1)
            return EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=committed,
            )
        except (IndexError, StructError, UnicodeDecodeError, OverflowError) as error:
            raise malformed(f"EndTxnRequest: {error}") from error

    def write(out, message):
        try:
            raw = message.transactional_id.encode()
            size = len(raw) + 1
            out += ONE_BYTE[size] if size < 128 else uvarint(size)
            out += raw
            out += pack_qhox(message.producer_id, message.producer_epoch, message.committed)
        except (StructError, AttributeError, TypeError, ValueError) as error:
            raise MisfitError(f"EndTxnRequest: {error}") from error

An array is a loop in the same function, whose struct's fields carry the array's name in front.

kio's own readers are not used: they allocate by the counts that a peer sends (five bytes can abort
the process), and they fail on tagged fields that they do not know, which KIP-482 has a reader skip.
Its writers, of about ten calls per field, judge ours in the tests. This module must not know any
message.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.protocol.schema_reader import ERRORS, ReaderSource
from oncelog.protocol.schema_writer import MisfitError, WriterSource
from oncelog.protocol.wire import Buffer

__all__ = ["MisfitError", "Reader", "Writer", "error_of", "reader", "writer"]

Reader = Callable[[Buffer, int], Any]
Writer = Callable[[bytearray, Any], None]


@cache
def reader(cls: type, target: type) -> Reader:
    """A function that reads a kio class at a position. Bytes after it are not looked at.

    It returns a `target`, which is `cls` or a class of the same message in another version: fields
    that only `cls` has are read and left out, fields that only `target` has get their defaults. It
    raises `ProtocolError` (invalid_request) and nothing else.
    """
    title = f"reader of {_label(cls)}"
    if target is not cls:
        title += f" as {_label(target)}"
    return ReaderSource(cls, target).source.compiled("read", title)


@cache
def writer(cls: type) -> Writer:
    """A function that appends a message to a bytearray, encoded as this kio class.

    The message is any object with the class's attributes. What does not fit them raises
    `MisfitError`; the bytearray then holds a part of the message.
    """
    return WriterSource(cls).source.compiled("write", f"writer of {_label(cls)}")


def _label(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("kio.schema.")


def error_of(code: int) -> ErrorCode:
    """The error of a number; a number newer than we are is unknown_server_error."""
    return ERRORS.get(code, ErrorCode.unknown_server_error)
