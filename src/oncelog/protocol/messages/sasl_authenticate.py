"""SaslAuthenticate."""

from dataclasses import field
from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bytes, Error, Int64, RequestFor, String, Versions


@message
class SaslAuthenticateRequest(RequestFor["SaslAuthenticateResponse"]):
    """SaslAuthenticate, versions 0 to 2. Its bytes may hold a password: they are shown nowhere."""

    auth_bytes: Bytes = field(default=b"", repr=False)


@message
class SaslAuthenticateResponse:
    """SaslAuthenticate's response."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions(1)] = 0
