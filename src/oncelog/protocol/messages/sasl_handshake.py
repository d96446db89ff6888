"""SaslHandshake."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, RequestFor, String


@message
class SaslHandshakeRequest(RequestFor["SaslHandshakeResponse"]):
    """SaslHandshake, versions 0 to 1."""

    mechanism: String = ""


@message
class SaslHandshakeResponse:
    """SaslHandshake's response."""

    error_code: Error = ErrorCode.none
    mechanisms: tuple[String, ...] = ()
