"""SaslHandshake."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest(RequestFor["SaslHandshakeResponse"]):
    """SaslHandshake, versions 0 to 1."""

    mechanism: String = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """SaslHandshake's response."""

    error_code: Error = ErrorCode.none
    mechanisms: tuple[String, ...] = ()
