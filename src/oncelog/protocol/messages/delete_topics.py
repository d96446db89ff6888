"""DeleteTopics."""

from dataclasses import dataclass
from typing import Annotated

from oncelog.core.errors import ErrorCode
from oncelog.protocol.fields import Bare, Error, Int32, Nullable, RequestFor, String, Uuid, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicState:
    """An element of `topics` in DeleteTopicsRequest."""

    name: Annotated[String | None, Nullable(6)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest(RequestFor["DeleteTopicsResponse"]):
    """DeleteTopics, versions 1 to 6."""

    topics: Annotated[tuple[DeleteTopicState, ...], Bare(5)] = ()
    """`topic_names` up to version 5."""
    timeout_ms: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    """An element of `responses` in DeleteTopicsResponse."""

    name: Annotated[String | None, Nullable(6)] = None
    topic_id: Annotated[Uuid, Versions(6)] = None
    error_code: Error = ErrorCode.none
    error_message: Annotated[String | None, Versions(5)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    """DeleteTopics's response."""

    throttle_time_ms: Int32 = 0
    responses: tuple[DeletableTopicResult, ...] = ()
