"""Request and response headers.

Requests carry header v1, or v2 (with tagged fields) when the version is flexible; the client id
keeps its old encoding in both. Responses carry header v0, or v1 when flexible, except ApiVersions,
whose response always has header v0 (KIP-511), so that a client can read the refusal of a version
that the broker does not know.
"""

from collections.abc import Callable
from functools import cache, lru_cache, partial
from struct import error as StructError  # noqa: N812 - it is an exception class
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode
from oncelog.core.integers import integers
from oncelog.protocol import wire
from oncelog.protocol.api import VERSIONS, ApiKey, flexible_since, is_flexible
from oncelog.protocol.wire import INT32, Buffer, malformed

_FIXED: Final = integers(">hhih")
_FIXED_SIZE: Final = _FIXED.size
_unpack_fixed = _FIXED.unpack_from
_CLIENT_IDS_CACHED_COUNT: Final = 1024


_NEVER: Final = (1, 0)
_TAGGED: Final[dict[int, tuple[int, int]]] = {
    int(api): (flexible_since(api), versions.max) for api, versions in VERSIONS.items()
}
"""First and last version with tagged fields in the request's header.

The body of an unknown version is never read, nor are the tags before it.
"""


class RequestHeader(NamedTuple):
    """The header of a request.

    `body_offset` is the offset of the body in the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


_new_header: Final[Callable[[tuple[object, ...]], RequestHeader]] = partial(
    tuple.__new__, RequestHeader
)
"""Makes a `RequestHeader` without the cost of calling its Python constructor."""


@lru_cache(maxsize=_CLIENT_IDS_CACHED_COUNT)
def _client_id(raw: bytes) -> str:
    return raw.decode()


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request frame (without its 4-byte size).

    An API or version that is not known does not fail: key, version and correlation id can always be
    read, and the broker answers or closes. Raises `ProtocolError` (invalid_request).
    """
    try:
        api_key, api_version, correlation_id, size = _unpack_fixed(frame, 0)
        position = _FIXED_SIZE
        client_id = None
        if size >= 0:
            end = position + size
            raw = bytes(frame[position:end])
            if len(raw) != size:
                raise malformed(f"client id of {size} bytes")
            client_id = _client_id(raw)
            position = end
        elif size != -1:
            raise malformed(f"client id of {size} bytes")
        since, last = _TAGGED.get(api_key, _NEVER)
        if since <= api_version <= last:
            position = position + 1 if frame[position] == 0 else wire.skip_tags(frame, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed(f"request header: {error}") from error
    return _new_header((api_key, api_version, correlation_id, client_id, position))


def request_header_bytes(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> bytes:
    """Encode a request header."""
    raw = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(raw)
    fixed = _FIXED.pack(api_key, api_version, correlation_id, size)
    return fixed + raw + b"\x00" if flexible else fixed + raw


@cache
def response_header_packer(api: ApiKey | int, version: int) -> Callable[[int], bytes]:
    """Return a function from a correlation id to a response's header, for this request version."""
    tagged = api != ApiKey.API_VERSIONS and is_flexible(api, version)
    return _TAGGED_RESPONSE.pack if tagged else INT32.pack


_TAGGED_RESPONSE: Final = integers(">ix")
"""A correlation id and no tagged field."""


def response_header_bytes(api: ApiKey | int, version: int, correlation_id: int) -> bytes:
    """Encode the header of a response to a request of this version."""
    return response_header_packer(api, version)(correlation_id)


def parse_response_header(api: ApiKey | int, version: int, frame: Buffer) -> tuple[int, int]:
    """(correlation id, offset of the body) of a response frame without its size.

    Raises `ProtocolError`.
    """
    try:
        correlation_id: int = INT32.unpack_from(frame, 0)[0]
        if api != ApiKey.API_VERSIONS and is_flexible(api, version):
            return correlation_id, wire.skip_tags(frame, 4)
    except (IndexError, StructError) as error:
        raise malformed(f"response header: {error}") from error
    return correlation_id, 4


def unsupported_version_response(correlation_id: int) -> bytes:
    """The answer to an ApiVersions request of an unknown version: v0, error 35, no keys.

    Without the 4-byte size. A broker that wants to name its ranges encodes an ordinary v0 response
    with that error.
    """
    return INT32.pack(correlation_id) + _UNSUPPORTED


_UNSUPPORTED: Final = integers(">hi").pack(ErrorCode.unsupported_version.value, 0)
