"""DescribeUserScramCredentials."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String


@message
class UserName:
    """An element of `users` in DescribeUserScramCredentialsRequest."""

    name: String = ""


@message
class DescribeUserScramCredentialsRequest(RequestFor["DescribeUserScramCredentialsResponse"]):
    """DescribeUserScramCredentials, versions 0 to 0."""

    users: tuple[UserName, ...] | None = ()


@message
class CredentialInfo:
    """An element of `credential_infos` in DescribeUserScramCredentialsResult."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


@message
class DescribeUserScramCredentialsResult:
    """An element of `results` in DescribeUserScramCredentialsResponse."""

    user: String = ""
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    credential_infos: tuple[CredentialInfo, ...] = ()


@message
class DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()
