"""SaslAuthenticate."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bytes, Error, Int64, RequestFor, String, Versions


@message
class SaslAuthenticateRequest(RequestFor["SaslAuthenticateResponse"]):
    """SaslAuthenticate, versions 0 to 2."""

    auth_bytes: Bytes = b""


@message
class SaslAuthenticateResponse:
    """SaslAuthenticate's response."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions(1)] = 0
