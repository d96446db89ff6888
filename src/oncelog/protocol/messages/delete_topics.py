"""DeleteTopics."""

from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Bare, Error, Int32, Nullable, RequestFor, String, Uuid, Versions


@message
class DeleteTopicState:
    """An element of `topics` in DeleteTopicsRequest."""

    name: Annotated[String | None, Nullable(6)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None


@message
class DeleteTopicsRequest(RequestFor["DeleteTopicsResponse"]):
    """DeleteTopics, versions 1 to 6."""

    topics: Annotated[tuple[DeleteTopicState, ...], Bare(5)] = ()
    """`topic_names` up to version 5."""
    timeout_ms: Int32 = 0


@message
class DeletableTopicResult:
    """An element of `responses` in DeleteTopicsResponse."""

    name: Annotated[String | None, Nullable(6)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None
    error_code: Error = ErrorCode.none
    error_message: Annotated[String | None, Versions(5)] = None


@message
class DeleteTopicsResponse:
    """DeleteTopics's response."""

    throttle_time_ms: Int32 = 0
    responses: tuple[DeletableTopicResult, ...] = ()
