"""Encodes and decodes every message but Produce and Fetch, in each version.

Requests parse to, and responses are written from, the one class of their message
(`oncelog.protocol.messages`), whatever the version on the wire. Frames here never include their
4-byte size.

At the first use of a message in a version this module writes the source of one straight-line
function that reads it, or of one that writes it, from the class's declaration (`fields`), and
compiles that once, as `dataclasses` does for `__init__`: a request costs a few calls instead of
several per field. A traceback shows the lines, so a reader can be followed like any other code.
`wire` has the primitive types; `codec_reader` and `codec_writer` write the sources, and both use
`codec_source`.

These are the functions for EndTxn. Neighbouring fields of fixed size are one `Struct` (`o` in its
name means `?`, and `x` is a zero byte: no tagged fields). A compact length usually takes one byte::

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
        except (StructError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise MisfitError(f"EndTxnRequest: {error}") from error

An array is a loop in the same function; the variables of its elements' fields begin with the
array's name. The writer of a response also takes a counter: with two lines before each error code
it counts those that are not NONE, for the metrics, without another walk over the response, and
replaces those that this version's clients do not know (`error_versions`).
This module must not know any message.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import MESSAGE_BYTES_MAX, MESSAGE_ELEMENTS_COUNT_MAX
from oncelog.protocol.api import ApiKey, is_flexible
from oncelog.protocol.codec_reader import ERRORS, ReaderSource
from oncelog.protocol.codec_writer import MisfitError, WriterSource
from oncelog.protocol.error_versions import replacements
from oncelog.protocol.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_packer,
    unsupported_version_response,
)
from oncelog.protocol.wire import Buffer, malformed

__all__ = [
    "MisfitError",
    "RequestHeader",
    "encode_request",
    "encode_response",
    "error_of",
    "parse_request",
    "parse_request_header",
    "parse_response",
    "parse_response_header",
    "reader",
    "request_class",
    "response_class",
    "unsupported_version_response",
    "writer",
]

Reader = Callable[[Buffer, int], Any]
Writer = Callable[[bytearray, Any], None]
ResponseWriter = Callable[[bytearray, Any, Counter[int]], None]


@cache
def request_class(api: ApiKey) -> type:
    """The class of this API's requests."""
    return _class(api, "Request")


@cache
def response_class(api: ApiKey) -> type:
    """The class of this API's responses."""
    return _class(api, "Response")


def _class(api: ApiKey, kind: str) -> type:
    # Creating a class takes about a millisecond, and a broker's start needs few of them.
    module = import_module(f"oncelog.protocol.messages.{api.schema_name}")
    cls: type = getattr(module, api.title + kind)
    return cls


@cache
def reader(
    cls: type,
    version: int,
    *,
    flexible: bool,
    elements_count_max: int = MESSAGE_ELEMENTS_COUNT_MAX,
) -> Reader:
    """Return a function that reads a version of a message at a position, ignoring bytes after it.

    It raises `ProtocolError` (invalid_request) and nothing else.
    """
    title = f"reader of {cls.__name__} v{version}"
    made = ReaderSource(cls, version, flexible=flexible, elements_count_max=elements_count_max)
    return made.source.compiled("read", title)


@cache
def writer(cls: type, version: int, *, flexible: bool) -> Writer:
    """A function that appends a message to a bytearray, encoded as this version.

    What does not fit raises `MisfitError`; the bytearray then holds a part of the message.
    """
    title = f"writer of {cls.__name__} v{version}"
    return WriterSource(cls, version, flexible=flexible).source.compiled("write", title)


@cache
def _request_reader(api: ApiKey, version: int) -> Reader:
    return reader(request_class(api), version, flexible=is_flexible(api, version))


@cache
def _response_reader(api: ApiKey, version: int) -> Reader:
    return reader(response_class(api), version, flexible=is_flexible(api, version))


@cache
def _request_writer(api: ApiKey, version: int) -> Writer:
    return writer(request_class(api), version, flexible=is_flexible(api, version))


@cache
def _response_writer(api: ApiKey, version: int) -> ResponseWriter:
    cls, flexible = response_class(api), is_flexible(api, version)
    title = f"writer of {cls.__name__} v{version}"
    made = WriterSource(cls, version, flexible=flexible, replaced=replacements(api, version))
    return made.source.compiled("write", title)


def parse_request(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` into an instance of `request_class(api)`.

    Call it for versions that `accepts` only. Raises `ProtocolError` (invalid_request) for bytes
    that are no such request, or more than `MESSAGE_BYTES_MAX` of them.
    """
    if len(frame) > MESSAGE_BYTES_MAX:
        raise malformed(f"{api.name} request of {len(frame)} bytes")
    return _request_reader(api, version)(frame, offset)


def parse_response(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` (of `parse_response_header`) into a `response_class(api)`.

    Raises `ProtocolError` (invalid_request).
    """
    return _response_reader(api, version)(frame, offset)


def encode_response(
    api: ApiKey,
    version: int,
    correlation_id: int,
    response: Any,
    errors: Counter[int] | None = None,
) -> bytes:
    """Encode header and body of a response, without the frame's 4-byte size.

    `version` is that of the request; `response` is a `response_class(api)`. What an old version
    cannot carry is left out, and an error code that its clients do not know is replaced
    (`error_versions`). The error codes written but NONE, wherever they stand, are counted in
    `errors`, as in Kafka's `errorCounts()`. Raises `MisfitError` for a value that its field cannot
    carry.
    """
    out = bytearray(response_header_packer(api, version)(correlation_id))
    _response_writer(api, version)(out, response, Counter() if errors is None else errors)
    return bytes(out)


def encode_request(
    api: ApiKey, version: int, correlation_id: int, client_id: str | None, request: Any
) -> bytes:
    """Encode header and body of a request, without the frame's 4-byte size.

    Raises `MisfitError` for a value that its field cannot carry.
    """
    flexible = is_flexible(api, version)
    out = bytearray(request_header_bytes(api, version, correlation_id, client_id, flexible))
    _request_writer(api, version)(out, request)
    return bytes(out)


def error_of(code: int) -> ErrorCode:
    """Return the error of a code; an unknown code is unknown_server_error."""
    return ERRORS.get(code, ErrorCode.unknown_server_error)
