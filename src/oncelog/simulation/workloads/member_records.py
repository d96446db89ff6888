"""Records what a consumer of ours asks its group's coordinator, and what it is told.

A consumer commits and joins by itself, so its calls do not show everything. `RecordedConsumer`
records each request to the coordinator, and its answer, as the scripted members do theirs: so the
same checkers judge both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from oncelog.client import Consumer, OffsetAndMetadata, TopicPartition
from oncelog.client.cluster import Cluster
from oncelog.client.requests import offsets_of
from oncelog.client.settings import ConnectionOptions
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import decode_assignment
from oncelog.protocol.fields import RequestFor
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from oncelog.protocol.messages.sync_group import SyncGroupRequest
from oncelog.simulation.history import (
    AssignmentMade,
    HeartbeatAnswered,
    HeartbeatAsked,
    Joined,
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
)
from oncelog.simulation.workloads.journal import Journal

__all__ = ["GroupRecorder", "RecordedConsumer"]

ResponseT = TypeVar("ResponseT")

_Topics = Iterable[ConsumerGroupHeartbeatTopicPartitions]


class GroupRecorder:
    """Records the requests of one consumer. Subclasses use what was found."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def offsets_found(
        self, wanted: list[TopicPartition], found: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """OffsetFetch was answered."""

    def asked(self, request: RequestFor[Any], names: dict[Any, str]) -> None:
        """A request is sent. `names` are those of topic ids."""
        record = self.journal.record
        if isinstance(request, OffsetCommitRequest):
            record(OffsetsCommitting, *_committer(request), _offsets(request))
        elif isinstance(request, ConsumerGroupHeartbeatRequest):
            owned = request.topic_partitions
            record(
                HeartbeatAsked,
                request.group_id,
                request.member_id,
                request.member_epoch,
                None if owned is None else _named(owned, names),
                request.instance_id or "",
            )
        elif isinstance(request, SyncGroupRequest) and request.assignments:
            made = {
                each.member_id: decode_assignment(bytes(each.assignment)).partitions
                for each in request.assignments
            }
            record(AssignmentMade, request.group_id, request.generation_id, made)

    def answered(
        self, request: RequestFor[Any], answer: object, asked_s: float, names: dict[Any, str]
    ) -> None:
        """The request that was sent at `asked_s` is answered."""
        if isinstance(answer, JoinGroupResponse) and isinstance(request, JoinGroupRequest):
            self._joined(request, answer)
        elif isinstance(answer, OffsetCommitResponse) and isinstance(request, OffsetCommitRequest):
            self._committed(request, answer)
        elif isinstance(answer, OffsetFetchResponse) and isinstance(request, OffsetFetchRequest):
            self._fetched(request, answer, asked_s)
        elif isinstance(answer, ConsumerGroupHeartbeatResponse) and isinstance(
            request, ConsumerGroupHeartbeatRequest
        ):
            told = answer.assignment
            self.journal.record(
                HeartbeatAnswered,
                request.group_id,
                request.member_id,
                answer.member_epoch,
                "" if answer.error_code is ErrorCode.none else answer.error_code.name,
                None if told is None else _named(told.topic_partitions, names),
            )

    def _joined(self, request: JoinGroupRequest, answer: JoinGroupResponse) -> None:
        if answer.error_code is ErrorCode.none:
            self.journal.record(
                Joined,
                request.group_id,
                answer.member_id,
                answer.generation_id,
                answer.protocol_name or "",
                answer.leader == answer.member_id,
                request.group_instance_id or "",
            )

    def _committed(self, request: OffsetCommitRequest, answer: OffsetCommitResponse) -> None:
        codes = [p.error_code for topic in answer.topics for p in topic.partitions]
        failed = [code for code in codes if code is not ErrorCode.none]
        if failed:
            partly = "" if len(failed) == len(codes) else "partly "
            how = f"{partly}{failed[0].name}"
            self.journal.record(OffsetsCommitRefused, *_committer(request), how)
        else:
            self.journal.record(OffsetsCommitted, *_committer(request), _offsets(request))

    def _fetched(
        self, request: OffsetFetchRequest, answer: OffsetFetchResponse, asked_s: float
    ) -> None:
        code, found = offsets_of(answer)
        if code is not ErrorCode.none:
            return
        (group,) = request.groups
        offsets = {tp: at.offset for tp, at in found.items()}
        self.journal.record(
            OffsetsFetched, group.group_id, offsets, asked_s, request.require_stable
        )
        wanted = [
            TopicPartition(str(topic.name), index)
            for topic in group.topics or ()
            for index in topic.partition_indexes
        ]
        self.offsets_found(wanted, found)


class _RecordedCluster(Cluster):
    def __init__(
        self, servers: str | Sequence[str], *, recorder: GroupRecorder, **options: Any
    ) -> None:
        super().__init__(servers, **options)
        self._recorder = recorder

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        api: ApiKey,
        request: RequestFor[ResponseT],
        at_most: int | None = None,
        *,
        as_member: bool = False,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Record the request and its answer."""
        recorder = self._recorder
        recorder.asked(request, self._names())
        asked_s = recorder.journal.now_s()
        answer = await super().ask_coordinator(
            kind, key, api, request, at_most, as_member=as_member, timeout_ms=timeout_ms
        )
        recorder.answered(request, answer, asked_s, self._names())
        return answer

    def _names(self) -> dict[Any, str]:
        topics = self.metadata.topics.items()
        return {topic.topic_id: name for name, topic in topics if topic.topic_id is not None}


class RecordedConsumer(Consumer):
    """Our consumer; it has one option more, `recorder`."""

    def __init__(self, servers: str, *, recorder: GroupRecorder, **options: Any) -> None:
        self._recorder = recorder
        super().__init__(servers, **options)

    def _new_cluster(self, servers: str | Sequence[str], options: ConnectionOptions) -> Cluster:
        return _RecordedCluster(servers, recorder=self._recorder, **options)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that are known, without a request to the broker."""
        return self._reading.consumed()


def _committer(request: OffsetCommitRequest) -> tuple[str, str, int]:
    return request.group_id, request.member_id, request.generation_id_or_member_epoch


def _offsets(request: OffsetCommitRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(str(topic.name), p.partition_index): p.committed_offset
        for topic in request.topics
        for p in topic.partitions
    }


def _named(topics: _Topics, names: dict[Any, str]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(names[topic.topic_id], index)
            for topic in topics
            if topic.topic_id in names
            for index in topic.partitions
        )
    )
