"""Reads a broker's supported versions from its ApiVersions answer (KIP-35, KIP-511, KIP-584).

A broker that does not know our version of ApiVersions refuses it in version 0, and is asked again
in version 0, which every broker knows.
"""

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.api import ADVERTISED, ApiKey, VersionRange
from oncelog.protocol.codec import parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["PeerSupport", "Send", "negotiate", "versions_request"]

Send = Callable[[ApiKey, int, object], Awaitable[memoryview]]
"""Sends a request in a version; its result is awaited for the body of the answer."""

_UNSUPPORTED_VERSION: Final = struct.pack(">h", ErrorCode.unsupported_version.value)
_SOFTWARE_NAME: Final = "oncelog"
_SOFTWARE_VERSION: Final = "0.1.0"


@dataclass(frozen=True, slots=True)
class PeerSupport:
    """The API versions and finalized features that a broker announced.

    It has a range of versions per API key, and the level of each finalized feature.
    `features_epoch` is -1 where the broker does not send it.
    """

    versions: Mapping[int, VersionRange] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1

    def includes(self, api: ApiKey, version: int) -> bool:
        """Whether both sides speak `version` of `api`."""
        theirs = self.versions.get(api)
        return theirs is not None and version in theirs and version in ADVERTISED[api]

    def newest_common(self, api: ApiKey, at_most: int | None = None) -> int | None:
        """Return the newest version that both sides support, `at_most` when given; None if none."""
        theirs = self.versions.get(api)
        if theirs is None:
            return None
        ours = ADVERTISED[api]
        newest = min(ours.max, theirs.max, ours.max if at_most is None else at_most)
        return newest if newest >= max(ours.min, theirs.min) else None


def versions_request() -> ApiVersionsRequest:
    """ApiVersions, with the name and version of this software (KIP-511)."""
    return ApiVersionsRequest(
        client_software_name=_SOFTWARE_NAME, client_software_version=_SOFTWARE_VERSION
    )


async def negotiate(send: Send, peer: str) -> PeerSupport:
    """Request the peer's versions; ask again in version 0 when it refuses ours.

    Raises `ProtocolError` when the peer refuses both, or answers with an error.
    """
    version = ADVERTISED[ApiKey.API_VERSIONS].max
    answer = await _ask(send, version)
    if answer is None:
        answer = await _ask(send, 0)
    if answer is None:
        text = f"{peer} refuses ApiVersions v{version} and v0"
        raise ProtocolError(ErrorCode.unsupported_version, text)
    if answer.error_code is not ErrorCode.none:
        raise ProtocolError(answer.error_code, f"{peer}: ApiVersions")
    return PeerSupport(
        versions={
            key.api_key: VersionRange(key.min_version, key.max_version) for key in answer.api_keys
        },
        features={f.name: f.max_version_level for f in answer.finalized_features},
        features_epoch=answer.finalized_features_epoch,
    )


async def _ask(send: Send, version: int) -> ApiVersionsResponse | None:
    """The answer to ApiVersions in `version`; None if the peer does not speak that version."""
    api = ApiKey.API_VERSIONS
    body = await send(api, version, versions_request())
    # A refusal is always encoded in version 0, which begins with the error code.
    is_refused = body[: len(_UNSUPPORTED_VERSION)] == _UNSUPPORTED_VERSION
    if is_refused:
        return None
    answer: ApiVersionsResponse = parse_response(api, version, body, 0)
    return answer
