"""Every message but Produce and Fetch: one definition per API, whatever the version on the wire.

Requests parse to, and responses are written from, the class of the newest version (`request_class`,
`response_class`): kio's, or the one in `oncelog.protocol.canonical` where no version shows all. How
versions differ in shape is in `oncelog.protocol.versions`. Frames here never include their 4-byte
size.

Messages are read by `schema` from kio's descriptions; kio's writers take any object with the right
attributes, so no old version's response is ever built.
"""

import datetime
import io
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from kio.serial import entity_writer
from kio.static.constants import EntityType

from oncelog.core.limits import MESSAGE_BYTES_MAX
from oncelog.protocol.api import ADVERTISED, ApiKey, is_flexible
from oncelog.protocol.conversion import Converter, converter, defaults
from oncelog.protocol.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_bytes,
    unsupported_version_response,
)
from oncelog.protocol.schema import read_message
from oncelog.protocol.versions import REQUEST_DOWN, REQUEST_UP, RESPONSE_DOWN, RESPONSE_UP, Hook
from oncelog.protocol.wire import Buffer, malformed

__all__ = [
    "RequestHeader",
    "encode_request",
    "encode_response",
    "message",
    "milliseconds",
    "parse_request",
    "parse_request_header",
    "parse_response",
    "parse_response_header",
    "request_class",
    "response_class",
    "to_milliseconds",
    "unsupported_version_response",
]

_CANONICAL: Final[dict[tuple[int, str], tuple[str, str]]] = {
    (ApiKey.METADATA, "request"): ("metadata_messages", "MetadataRequest"),
    (ApiKey.METADATA, "response"): ("metadata_messages", "MetadataResponse"),
    (ApiKey.OFFSET_COMMIT, "request"): ("canonical", "OffsetCommitRequest"),
    (ApiKey.OFFSET_COMMIT, "response"): ("canonical", "OffsetCommitResponse"),
    (ApiKey.OFFSET_FETCH, "request"): ("canonical", "OffsetFetchRequest"),
    (ApiKey.OFFSET_FETCH, "response"): ("canonical", "OffsetFetchResponse"),
}
"""Classes of our own, by module of `oncelog.protocol` and name: made when first asked for."""

Writer = Callable[[Any, Any], None]


def request_class(api: ApiKey) -> type[Any]:
    """The class that requests of this API parse to, in all versions."""
    return _newest_class(api, "request")


def response_class(api: ApiKey) -> type[Any]:
    """The class that responses of this API are built of, in all versions."""
    return _newest_class(api, "response")


def message(cls: type, **fields: object) -> Any:
    """Build a kio value without a type error for every literal integer.

    Fields that are left out take the schema's default, or the zero of their type.
    """
    return cls(**{**defaults(cls), **fields})


def milliseconds(value: int) -> datetime.timedelta:
    """Kio's time spans are timedeltas."""
    return datetime.timedelta(milliseconds=value)


def to_milliseconds(value: datetime.timedelta) -> int:
    """Whole milliseconds of a time span."""
    return value // _MILLISECOND


_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@cache
def _schema_class(api: ApiKey, version: int, kind: str) -> type:
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.{kind}")
    wanted = EntityType.request if kind == "request" else EntityType.response
    for candidate in vars(module).values():
        if getattr(candidate, "__type__", None) is wanted:
            return candidate  # type: ignore[no-any-return]
    raise LookupError(f"no {kind} in {module.__name__}")


def _newest_class(api: ApiKey, kind: str) -> type:
    ours = _CANONICAL.get((api, kind))
    if ours is None:
        return _schema_class(api, ADVERTISED[api].max, kind)
    module, name = ours
    cls: type = getattr(import_module(f"oncelog.protocol.{module}"), name)
    return cls


def _unchanged(_version: int, value: Any) -> Any:
    return value


@cache
def _reading(api: ApiKey, version: int, kind: str) -> tuple[type, Hook, Converter]:
    old, new = _schema_class(api, version, kind), _newest_class(api, kind)
    hook = (REQUEST_UP if kind == "request" else RESPONSE_UP).get(api, _unchanged)
    return old, hook, converter(old, new)


@cache
def _writing(api: ApiKey, version: int, kind: str) -> tuple[Writer, Hook]:
    hook = (REQUEST_DOWN if kind == "request" else RESPONSE_DOWN).get(api, _unchanged)
    return entity_writer(_schema_class(api, version, kind)), hook


def parse_request(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` into an instance of `request_class(api)`.

    Call it for versions that `accepts` only. Raises `ProtocolError` (invalid_request) for bytes
    that are no such request, or more than `MESSAGE_BYTES_MAX` of them.
    """
    if len(frame) > MESSAGE_BYTES_MAX:
        raise malformed(f"{api.name} request of {len(frame)} bytes")
    return _parse(api, version, "request", frame, offset)


def parse_response(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` (of `parse_response_header`) into a `response_class(api)`.

    Raises `ProtocolError` (invalid_request).
    """
    return _parse(api, version, "response", frame, offset)


def _parse(api: ApiKey, version: int, kind: str, frame: Buffer, offset: int) -> Any:
    schema, hook, change = _reading(api, version, kind)
    value = read_message(schema, frame, offset)
    upgraded = hook(version, value)
    return change(value) if upgraded is value else upgraded


def encode_response(api: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """Encode header and body of a response, without the frame's 4-byte size.

    `version` is that of the request; `response` is a `response_class(api)`. What an old version
    cannot carry is left out.
    """
    write, hook = _writing(api, version, "response")
    buffer = io.BytesIO()
    buffer.write(response_header_bytes(api, version, correlation_id))
    write(buffer, hook(version, response))
    return buffer.getvalue()


def encode_request(
    api: ApiKey, version: int, correlation_id: int, client_id: str | None, request: Any
) -> bytes:
    """Encode header and body of a request, without the frame's 4-byte size."""
    write, hook = _writing(api, version, "request")
    buffer = io.BytesIO()
    flexible = is_flexible(api, version)
    buffer.write(request_header_bytes(api, version, correlation_id, client_id, flexible))
    write(buffer, hook(version, request))
    return buffer.getvalue()
