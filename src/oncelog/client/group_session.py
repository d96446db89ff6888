"""A consumer's side of its group: subscriptions, commits as a member, callbacks, auto-commit.

`Consumer` has one of these if it has a group. `membership` keeps the member in the group; this
carries out what a change means for positions, commits and the application's listener.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from uuid import UUID, uuid4

from oncelog.client.cluster import Cluster
from oncelog.client.errors import (
    ClientError,
    CommitFailedError,
    FencedError,
    IllegalStateError,
    RetriableError,
)
from oncelog.client.group_offsets import commit_offsets, fetch_offsets
from oncelog.client.machines.assignors import ASSIGNORS, PartitionAssignor
from oncelog.client.machines.classic_member import ClassicMember
from oncelog.client.machines.consumer_member import NewProtocolMember
from oncelog.client.machines.membership import (
    ChangeKind,
    GroupMachine,
    MemberSettings,
    OwnershipChange,
)
from oncelog.client.machines.unknown import does_not_exist
from oncelog.client.membership import (
    METADATA_MAX_AGE_MS,
    Membership,
    RebalanceListener,
    Subscribed,
    call_listener,
)
from oncelog.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["GroupOptions", "GroupProtocol", "GroupSession", "Reads", "Strategy"]

GroupProtocol = Literal["classic", "consumer"]
Strategy = str | PartitionAssignor
DEFAULT_STRATEGY: Final[Sequence[Strategy]] = ("range", "cooperative-sticky")
"""Kafka's: eager, until all members have moved to cooperative-sticky alone."""

_REFUSED = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.group_id_not_found,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
    }
)

log = logging.getLogger("oncelog.client")


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a consumer takes part in its group, with Kafka's defaults; times are in ms.

    strategy: names of Kafka's assignors, or assignors of one's own, or one such; the group chooses
    one that all its members have. auto_commit None: yes for who subscribes, no for who assigns.
    """

    group_id: str
    protocol: GroupProtocol = "classic"
    instance_id: str | None = None
    strategy: Sequence[Strategy] = DEFAULT_STRATEGY
    server_assignor: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    auto_commit: bool | None = None
    auto_commit_interval_ms: int = 5_000
    rack_id: str | None = None
    metadata_max_age_ms: float = METADATA_MAX_AGE_MS

    def __post_init__(self) -> None:
        if self.protocol not in ("classic", "consumer"):
            raise ValueError(f"group_protocol {self.protocol!r} must be classic or consumer")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat_interval_ms {self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms {self.session_timeout_ms}"
            )
        self.assignors()

    @property
    def settings(self) -> MemberSettings:
        """What the member's machine needs."""
        return MemberSettings(
            self.group_id,
            self.session_timeout_ms,
            self.heartbeat_interval_ms,
            self.max_poll_interval_ms,
            self.instance_id,
            self.rack_id,
        )

    def assignors(self) -> list[PartitionAssignor]:
        """The assignors that this member has. Raises `ValueError` for an unknown name."""
        is_one = isinstance(self.strategy, str | PartitionAssignor)
        return [_assignor(each) for each in ([self.strategy] if is_one else self.strategy)]

    def machine(self, rng: random.Random | None = None) -> GroupMachine:
        """A member that is not in the group yet. `rng` draws its id; None: the system does."""
        if self.protocol == "consumer":
            member_id = uuid4() if rng is None else UUID(int=rng.getrandbits(128), version=4)
            return NewProtocolMember(self.settings, str(member_id), self.server_assignor)
        return ClassicMember(self.settings, self.assignors())


def _assignor(wanted: object) -> PartitionAssignor:
    if isinstance(wanted, PartitionAssignor):
        return wanted
    # Java's class names come with copied configurations.
    name = str(wanted).rpartition(".")[2].removesuffix("Assignor")
    known = {each.replace("-", ""): each for each in ASSIGNORS}
    found = known.get(name.lower().replace("-", ""))
    if found is None:
        raise ValueError(
            f"partition_assignment_strategy {wanted!r} must be one of {', '.join(ASSIGNORS)}, "
            "or an object with name, is_cooperative, user_data and assign"
        )
    return ASSIGNORS[found]


class Reads(Protocol):
    """What a session needs of its consumer."""

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too; where they begin is not known yet."""

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more, and forget what was fetched of them."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions behind what the application was given, where they are known."""


class GroupSession:
    """One consumer and its group. It is a member from the first `advance` after `subscribe` on."""

    def __init__(self, cluster: Cluster, options: GroupOptions, reads: Reads) -> None:
        self._cluster = cluster
        self._options = options
        self._reads = reads
        self._listener: RebalanceListener | None = None
        self._membership: Membership | None = None
        self._committed_ms = cluster.clock.monotonic_ms()
        self._committing: asyncio.Task[None] | None = None
        self._has_left = False
        self._owned_as: ConsumerGroupMetadata | None = None
        """As whom this consumer got its last partitions."""

    # --- being a member ---------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the group decides what is read."""
        return self._membership is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that were subscribed to by name."""
        return () if self._membership is None else self._membership.subscribed.topics

    def subscribe(
        self,
        topics: Sequence[str],
        pattern: str | re.Pattern[str] | None,
        listener: RebalanceListener | None,
    ) -> None:
        """Become a member, or read other topics as the one that it is."""
        by_broker = self._options.protocol == "consumer"
        subscribed = Subscribed(topics, pattern, is_matched_by_broker=by_broker)
        self._has_left = False
        self._listener = listener
        if self._membership is None:
            self._membership = Membership(
                self._cluster,
                self._options.machine(self._cluster.rng),
                self._options.settings,
                self._carry_out,
                metadata_max_age_ms=self._options.metadata_max_age_ms,
            )
        self._membership.subscribe(subscribed)

    async def advance(self, deadline_ms: float, *, wait: bool) -> None:
        """Carry out what the group wants; see `Membership.advance`. Commits now and then."""
        self._commit_if_due()
        if self._membership is not None:
            await self._membership.advance(deadline_ms, wait=wait)

    def check_topics(self) -> None:
        """Raise `FatalError` for a topic of the subscription that still does not exist."""
        if self._membership is not None and (name := self._membership.take_missing()) is not None:
            raise does_not_exist(TopicPartition(name, 0), None)

    async def leave(self) -> None:
        """Commit, give everything up, and leave the group; a second call does nothing."""
        if self._has_left:
            return
        self._has_left = True
        if self._committing is not None:
            await asyncio.wait((self._committing,))
        if self._membership is not None:
            try:
                await self._membership.close()
            finally:
                self._membership = self._owned_as = None
        elif self._commits_by_itself:
            await self._commit_quietly(self._reads.consumed())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer's offsets are committed (KIP-447).

        A member that was expelled, which it may learn at any time, remains the one that it was
        until it gets partitions again: as no member its offsets would not be checked (INV-8).
        """
        identity = self._identity()
        return self._owned_as if identity.generation < 0 and self._owned_as else identity

    def _identity(self) -> ConsumerGroupMetadata:
        if self._membership is None:
            return ConsumerGroupMetadata(self._options.group_id)
        return self._membership.machine.identity

    async def _carry_out(self, change: OwnershipChange) -> None:
        """What a change means: positions, a commit, and the listener, in Java's order."""
        if change.kind is ChangeKind.ASSIGNED:
            self._owned_as = self._identity()
            self._reads.take(change.partitions)
            await call_listener(self._listener, change)
            return
        try:
            if change.kind is ChangeKind.REVOKED and self._commits_by_itself:
                consumed = self._reads.consumed()
                going = {tp: consumed[tp] for tp in change.partitions if tp in consumed}
                await self._commit_quietly(going)
            await call_listener(self._listener, change)
        finally:
            self._reads.drop(change.partitions)

    # --- commits ----------------------------------------------------------------------

    @property
    def _commits_by_itself(self) -> bool:
        wanted = self._options.auto_commit
        return self.is_subscribed if wanted is None else wanted

    def _commit_if_due(self) -> None:
        now_ms = self._cluster.clock.monotonic_ms()
        is_due = now_ms - self._committed_ms >= self._options.auto_commit_interval_ms
        is_busy = self._committing is not None and not self._committing.done()
        if not is_due or is_busy or not self._commits_by_itself:
            return
        self._committed_ms = now_ms
        if consumed := self._reads.consumed():
            self._committing = asyncio.create_task(self._commit_quietly(consumed))

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if not offsets:
            return
        try:
            await self.commit(offsets, self._options.auto_commit_interval_ms)
        except ClientError as error:
            # The next commit has these positions as well, unless the partitions have gone.
            log.warning("offsets of group %s were not committed: %s", self._options.group_id, error)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float
    ) -> None:
        """Commit as the member that this consumer is, or by the group's name alone.

        Raises `CommitFailedError` if the group went on without this member.
        """

        async def call() -> None:
            identity = self._identity()
            if self.is_subscribed and identity.generation < 0:
                raise self._commit_failed(ErrorCode.unknown_member_id)
            try:
                await commit_offsets(self._cluster, identity, offsets)
            except ClientError as error:
                if self._membership is None or error.code not in _REFUSED:
                    raise
                self._membership.machine.commit_refused(error.code, identity)
                raise self._commit_failed(error.code) from error

        await self._cluster.retrying(call, timeout_ms)

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool,
        timeout_ms: float,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets; asked for as a member under the new protocol, which checks it."""
        is_checked = self._options.protocol == "consumer" and self.is_subscribed
        group = self._identity() if is_checked else self._options.group_id
        return await fetch_offsets(self._cluster, group, partitions, require_stable, timeout_ms)

    def _commit_failed(self, code: ErrorCode) -> ClientError:
        group_id = self._options.group_id
        if code is ErrorCode.stale_member_epoch:
            return RetriableError(code, f"group {group_id}: the next heartbeat brings the epoch")
        if code is ErrorCode.fenced_instance_id:
            return FencedError(code, f"group {group_id}: another consumer has the instance id")
        text = (
            f"group {group_id} has rebalanced without this consumer, so its partitions may be"
            " another's; poll again, and commit sooner or raise max_poll_interval_ms"
        )
        if code is ErrorCode.rebalance_in_progress:
            text = f"group {group_id} is rebalancing; poll first, then commit what is still owned"
        return CommitFailedError(code, text)

    def require_no_member(self) -> None:
        """Raise `IllegalStateError` if the group decides what is read."""
        if self.is_subscribed:
            raise IllegalStateError("the consumer is subscribed; unsubscribe before assign")
        self._has_left = False
