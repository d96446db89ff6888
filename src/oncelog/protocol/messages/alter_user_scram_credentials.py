"""AlterUserScramCredentials."""

from dataclasses import field

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bytes, Error, Int8, Int32, RequestFor, String


@message
class ScramCredentialDeletion:
    """An element of `deletions` in AlterUserScramCredentialsRequest."""

    name: String = ""
    mechanism: Int8 = 0


@message
class ScramCredentialUpsertion:
    """An element of `upsertions` in AlterUserScramCredentialsRequest.

    The salted password stands for the password: it is shown nowhere.
    """

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = field(default=b"", repr=False)
    salted_password: Bytes = field(default=b"", repr=False)


@message
class AlterUserScramCredentialsRequest(RequestFor["AlterUserScramCredentialsResponse"]):
    """AlterUserScramCredentials, versions 0 to 0."""

    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


@message
class AlterUserScramCredentialsResult:
    """An element of `results` in AlterUserScramCredentialsResponse."""

    user: String = ""
    error_code: Error = ErrorCode.none
    error_message: String | None = None


@message
class AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials's response."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()
