"""Holds the common parts of members of both protocols: commit and fetch offsets, lose partitions.

Sources: `CommitRequestManager`, `ConsumerCoordinator` (Java).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from oncelog.client import requests
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages import offset_commit, offset_fetch
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    OffsetsCommitRefused,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
    Revoked,
)
from oncelog.simulation.peers.wire import GROUP, LostError, PeerWire

__all__ = ["GroupClient"]

_MOVED: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


class GroupClient(ABC):
    """One process in a group. `generation` is its member epoch under KIP-848; -1: in none.

    `former`: the generation before the last change, -1 if there was none. `is_fenced`: the process
    cannot continue under this identity.
    """

    def __init__(
        self,
        context: ClientContext,
        wire: PeerWire,
        group_id: str,
        topics: Sequence[str],
        instance_id: str | None,
    ) -> None:
        self.context = context
        self.wire = wire
        self.group_id = group_id
        self.topics = tuple(topics)
        self.instance_id = instance_id if wire.flavor.static_membership else None
        self.member_id = ""
        self.generation = -1
        self.former = -1
        self.assigned: tuple[TopicPartition, ...] = ()
        self.is_fenced = False
        self.session_ms = int(context.get("session_timeout_ms", 6_000))
        self.rebalance_ms = int(context.get("rebalance_timeout_ms", 10_000))
        self._beat_s = 0.0
        self._attempt = 0

    @property
    @abstractmethod
    def is_cooperative(self) -> bool:
        """Return whether members keep their partitions during a rebalance."""

    @property
    @abstractmethod
    def must_join(self) -> bool:
        """Return whether the member has to join (again) before it continues to read."""

    @abstractmethod
    async def join(self) -> bool:
        """Try once to get an assignment; return True once the member has one."""

    @abstractmethod
    async def beat(self, *, now: bool = False) -> None:
        """Send a heartbeat if one is due."""

    @abstractmethod
    async def watch(self) -> bool:
        """Check whether topics or the group have changed; return False if that is unknown."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group, and revoke all partitions."""

    def _refused(self, api: ApiKey, code: ErrorCode) -> None:
        """Handle an error; subclasses define what it means for the membership."""
        if code in _MOVED:
            self.wire.forget_coordinator(GROUP, self.group_id)
        elif code in (ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition):
            self.wire.topics.clear()

    @property
    def membership(self) -> tuple[int, str, str | None]:
        """Generation, member id and instance id, as in TxnOffsetCommit."""
        return self.generation, self.member_id, self.instance_id

    # --- offsets ----------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Try once to commit positions as this member of this generation (INV-8)."""
        code = await self._commit(offsets, self.generation)
        if code is None or code is ErrorCode.none:
            return code is not None
        self._refused(ApiKey.OFFSET_COMMIT, code)
        return False

    async def repeat(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit with the former generation, as a delayed request does."""
        if self.former >= 0 and offsets:
            await self._commit(offsets, self.former)

    async def _commit(
        self, offsets: Mapping[TopicPartition, int], generation: int
    ) -> ErrorCode | None:
        """Return the first error of a commit; None without a response."""
        who = self.group_id, self.member_id, generation
        self.context.record(OffsetsCommitting, *who, dict(offsets))
        request = self._commit_request(offsets, generation)
        at_most = self._by_name(offsets)
        answer = await self._ask(ApiKey.OFFSET_COMMIT, request, None, at_most)
        if answer is None:
            return None
        codes = [p.error_code for topic in answer.topics for p in topic.partitions]
        failed = [code for code in codes if code is not ErrorCode.none]
        if failed:
            # Under KIP-848 an older epoch may commit some partitions and not others (KIP-1251).
            partly = "" if len(failed) == len(codes) else "partly "
            self.context.record(OffsetsCommitRefused, *who, f"{partly}{failed[0].name}")
            return failed[0]
        self.context.record(OffsetsCommitted, *who, dict(offsets))
        return ErrorCode.none

    def _by_name(self, partitions: Iterable[TopicPartition]) -> int | None:
        """Choose a version: those with topic ids need topics whose ids are known."""
        is_known = all(self.wire.topic_id(at.topic) is not None for at in partitions)
        return None if is_known else requests.OFFSETS_BY_NAME_MAX

    def _commit_request(
        self, offsets: Mapping[TopicPartition, int], generation: int
    ) -> offset_commit.OffsetCommitRequest:
        request = requests.offset_commit_request(
            self.group_id, {at: OffsetAndMetadata(offset) for at, offset in offsets.items()}
        )
        return replace(
            request,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=tuple(
                replace(topic, topic_id=self.wire.topic_id(topic.name or ""))
                for topic in request.topics
            ),
        )

    async def committed(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, int] | None:
        """Return the group's offsets of these partitions; None if they are not available now."""
        asked_s = self.context.now_s()
        wanted = sorted(set(partitions))
        request = self._offsets_request(wanted, stable)
        answer = await self._ask(ApiKey.OFFSET_FETCH, request, None, self._by_name(wanted))
        if answer is None:
            return None
        code, offsets = self._offsets_of(answer)
        if code is not ErrorCode.none:
            if code is not ErrorCode.unstable_offset_commit:
                self._refused(ApiKey.OFFSET_FETCH, code)
            return None
        self.context.record(OffsetsFetched, self.group_id, offsets, asked_s, stable)
        return offsets

    def _offsets_request(
        self, wanted: Sequence[TopicPartition], stable: bool
    ) -> offset_fetch.OffsetFetchRequest:
        group = self._offsets_group(wanted)
        return offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=stable)

    def _offsets_group(
        self, wanted: Sequence[TopicPartition]
    ) -> offset_fetch.OffsetFetchRequestGroup:
        return offset_fetch.OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=tuple(
                offset_fetch.OffsetFetchRequestTopics(
                    name=name,
                    topic_id=self.wire.topic_id(name),
                    partition_indexes=tuple(indexes),
                )
                for name, indexes in requests.by_topic(wanted).items()
            ),
        )

    def _offsets_of(
        self, answer: offset_fetch.OffsetFetchResponse
    ) -> tuple[ErrorCode, dict[TopicPartition, int]]:
        """Return the first error of an OffsetFetch response, and its offsets."""
        names = {view.topic_id: name for name, view in self.wire.topics.items() if view.topic_id}
        group = answer.groups[0]
        offsets: dict[TopicPartition, int] = {}
        code = group.error_code
        for topic in group.topics:
            name = topic.name
            if name is None:
                name = "" if topic.topic_id is None else names.get(topic.topic_id, "")
            for p in topic.partitions:
                if p.error_code is not ErrorCode.none:
                    code = p.error_code if code is ErrorCode.none else code
                elif p.committed_offset >= 0:
                    offsets[TopicPartition(name, int(p.partition_index))] = int(p.committed_offset)
        return code, offsets

    def _enter(self, generation: int) -> None:
        """Set the current generation. A new member has no former one."""
        if generation != self.generation:
            self.former = self.generation
        self.generation = generation

    # --- losing -----------------------------------------------------------------------

    def die(self) -> None:
        """Drop all partitions without a request to the coordinator."""
        self._revoke(self.assigned)

    def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self.context.record(Revoked, self.group_id, self.member_id, tuple(partitions))
        self.assigned = tuple(at for at in self.assigned if at not in partitions)

    # --- asking -----------------------------------------------------------------------

    async def _ask(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        timeout_ms: float | None,
        at_most: int | None = None,
    ) -> ResponseT | None:
        """Send one request to the group's coordinator; return None without a response."""
        address = await self.wire.coordinator(GROUP, self.group_id)
        if address is None:
            await self.context.back_off(self._attempt)
            return None
        try:
            return await self.wire.ask(
                api,
                request,
                to=address,
                lane=self.wire.lane(GROUP),
                timeout_ms=timeout_ms,
                at_most=at_most,
            )
        except LostError:
            self.wire.forget_coordinator(GROUP, self.group_id)
            return None
