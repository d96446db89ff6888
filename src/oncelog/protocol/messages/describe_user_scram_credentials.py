"""DescribeUserScramCredentials."""

from dataclasses import dataclass

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Error, Int8, Int32, RequestFor, String


@dataclass(frozen=True, slots=True, kw_only=True)
class UserName:
    """An element of `users` in DescribeUserScramCredentialsRequest."""

    name: String = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest(RequestFor["DescribeUserScramCredentialsResponse"]):
    """DescribeUserScramCredentials, versions 0 to 0."""

    users: tuple[UserName, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialInfo:
    """An element of `credential_infos` in DescribeUserScramCredentialsResult."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResult:
    """An element of `results` in DescribeUserScramCredentialsResponse."""

    user: String = ""
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    credential_infos: tuple[CredentialInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()
