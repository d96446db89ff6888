"""Every message but Produce and Fetch: one definition per API, whatever the version on the wire.

Requests parse to, and responses are written from, the class of the newest version (`request_class`,
`response_class`): kio's, or the one in `oncelog.protocol.canonical` where no version shows all. How
versions differ in shape is in `oncelog.protocol.versions`. Frames here never include their 4-byte
size.

Readers and writers are those that `schema` compiles of kio's descriptions. A reader of an old
version builds the newest class at once, unless `versions` has a hook for its shape; a writer takes
any object with the right attributes, so no old version's response is ever built.
"""

import datetime
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from kio.static.constants import EntityType

from oncelog.core.limits import MESSAGE_BYTES_MAX
from oncelog.protocol.api import ADVERTISED, ApiKey, is_flexible
from oncelog.protocol.conversion import converter, defaults
from oncelog.protocol.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_packer,
    unsupported_version_response,
)
from oncelog.protocol.schema import MisfitError, Reader, Writer, reader, writer
from oncelog.protocol.versions import REQUEST_DOWN, REQUEST_UP, RESPONSE_DOWN, RESPONSE_UP, Hook
from oncelog.protocol.wire import Buffer, malformed

__all__ = [
    "MisfitError",
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


@cache
def _reading(api: ApiKey, version: int, kind: str) -> tuple[Reader, Hook | None]:
    """The reader of a version, and what makes the newest class of its values if it does not."""
    old, new = _schema_class(api, version, kind), _newest_class(api, kind)
    hook = (REQUEST_UP if kind == "request" else RESPONSE_UP).get(api)
    if hook is None:
        return reader(old, new), None
    return reader(old, old), _upgrade(hook, converter(old, new))


def _upgrade(hook: Hook, change: Callable[[Any], Any]) -> Hook:
    def upgrade(version: int, value: Any) -> Any:
        upgraded = hook(version, value)
        return change(value) if upgraded is value else upgraded

    return upgrade


@cache
def _writing(api: ApiKey, version: int, kind: str) -> tuple[Writer, Hook | None]:
    """The writer of a version, and what makes its shape of the newest class if it differs."""
    hook = (REQUEST_DOWN if kind == "request" else RESPONSE_DOWN).get(api)
    return writer(_schema_class(api, version, kind)), hook


def parse_request(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` into an instance of `request_class(api)`.

    Call it for versions that `accepts` only. Raises `ProtocolError` (invalid_request) for bytes
    that are no such request, or more than `MESSAGE_BYTES_MAX` of them.
    """
    if len(frame) > MESSAGE_BYTES_MAX:
        raise malformed(f"{api.name} request of {len(frame)} bytes")
    read, upgrade = _reading(api, version, "request")
    value = read(frame, offset)
    return value if upgrade is None else upgrade(version, value)


def parse_response(api: ApiKey, version: int, frame: Buffer, offset: int) -> Any:
    """Parse the body at `offset` (of `parse_response_header`) into a `response_class(api)`.

    Raises `ProtocolError` (invalid_request).
    """
    read, upgrade = _reading(api, version, "response")
    value = read(frame, offset)
    return value if upgrade is None else upgrade(version, value)


def encode_response(api: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """Encode header and body of a response, without the frame's 4-byte size.

    `version` is that of the request; `response` is a `response_class(api)`. What an old version
    cannot carry is left out. Raises `MisfitError` for a value that its field cannot carry.
    """
    write, hook = _writing(api, version, "response")
    out = bytearray(response_header_packer(api, version)(correlation_id))
    write(out, response if hook is None else hook(version, response))
    return bytes(out)


def encode_request(
    api: ApiKey, version: int, correlation_id: int, client_id: str | None, request: Any
) -> bytes:
    """Encode header and body of a request, without the frame's 4-byte size.

    Raises `MisfitError` for a value that its field cannot carry.
    """
    write, hook = _writing(api, version, "request")
    flexible = is_flexible(api, version)
    out = bytearray(request_header_bytes(api, version, correlation_id, client_id, flexible))
    write(out, request if hook is None else hook(version, request))
    return bytes(out)
