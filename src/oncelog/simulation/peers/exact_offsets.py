"""What a group has committed, and the ways to commit, fetch and delete it, each compared.

Offsets have metadata, leader epochs and now and then a retention of their own. They are fetched by
name and by topic id, all at once, beside another group, as stable and not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import offset_commit, offset_delete, offset_fetch
from oncelog.simulation.peers.scene import SLACK_MS, Scene
from oncelog.simulation.peers.wire import PeerWire

__all__ = ["ALONE", "Commit", "Offsets", "Who"]

_BY_ID_MIN: Final = 10
_EPOCH_MIN: Final = 6
_OWN_RETENTION: Final = (2, 4)
_EPOCH_FETCHED_MIN: Final = 5
_GROUPS_MIN: Final = 8
_STABLE_MIN: Final = 7
_ALL_MIN: Final = 2
_METADATA_SIZE_MAX: Final = 4_096
_NO_GROUP: Final = "no-such-group"


class Commit(NamedTuple):
    """One committed offset, as OffsetFetch shows it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


_NOTHING: Final = Commit(-1)


class Who(NamedTuple):
    """In whose name a request comes."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


ALONE: Final = Who()
"""A client that is no member."""


class Offsets:
    """The offsets of the scene's group; `committed` is the model, `pending` its open transaction.

    `topics` are those that offsets are committed for.
    """

    def __init__(self, scene: Scene, topics: Sequence[str]) -> None:
        self._scene = scene
        self.topics = topics
        self.committed: dict[TopicPartition, Commit] = {}
        self.pending: dict[TopicPartition, Commit] = {}
        self.expires_ms: dict[TopicPartition, tuple[float, float]] = {}
        """Of offsets with a retention of their own: when it is over, at the earliest and latest."""
        self.free_ms: float | None = None
        """Since when the group has no members, so that nothing keeps what is over."""

    async def places(self) -> list[TopicPartition]:
        """Return all partitions that offsets may be committed for."""
        wire = self._scene.admin

        async def known() -> bool:
            return all(topic in wire.topics for topic in self.topics) or (
                await wire.refresh(self.topics)
                and all(topic in wire.topics for topic in self.topics)
            )

        await self._scene.until(known, "the topics are known")
        return wire.partitions(self.topics)

    async def drawn(self) -> dict[TopicPartition, Commit]:
        """Draw offsets of up to three partitions."""
        rng, known = self._scene.rng, await self.places()
        return {
            at: Commit(
                rng.randint(0, 10**9), rng.choice((-1, 0, 7)), rng.choice(("", "m", "µ" * 9))
            )
            for at in rng.sample(known, rng.randint(1, min(3, len(known))))
        }

    # --- committing -------------------------------------------------------------------

    async def commit(
        self, wire: PeerWire, who: Who = ALONE, due: ErrorCode = ErrorCode.none
    ) -> None:
        """Commit offsets of some partitions; each has to get the code that is due."""
        scene, offsets = self._scene, await self.drawn()
        too_large = scene.rng.choice(sorted(offsets)) if scene.rng.random() < 0.1 else None
        if too_large is not None:
            offsets[too_large] = Commit(1, -1, "m" * (_METADATA_SIZE_MAX + 1))
        retention_ms = scene.rng.choice((-1, -1, 400, 86_400_000)) if who is ALONE else -1
        oldest, newest = (7 if who.instance_id else 0), None
        if retention_ms >= 0:
            oldest, newest = _OWN_RETENTION
        request = self._request(offsets, who, retention_ms)
        began_ms = scene.now_ms()
        answer, version = await scene.ask(
            wire, ApiKey.OFFSET_COMMIT, request, at_least=oldest, at_most=newest
        )
        for at, code in self._codes(answer, offsets).items():
            expected = due
            if at == too_large and due is ErrorCode.none:
                expected = ErrorCode.offset_metadata_too_large
            scene.expect(
                scene.sure(code) is expected,
                f"OffsetCommit v{version} of {at} by {who} got {code.name}, not {expected.name}",
            )
            if expected is ErrorCode.none:
                commit = offsets[at]
                has_epoch = version >= _EPOCH_MIN
                self.committed[at] = commit if has_epoch else commit._replace(leader_epoch=-1)
                self.expires_ms.pop(at, None)
                if retention_ms >= 0:
                    self.expires_ms[at] = began_ms + retention_ms, scene.now_ms() + retention_ms

    def _request(
        self, offsets: Mapping[TopicPartition, Commit], who: Who, retention_ms: int
    ) -> offset_commit.OffsetCommitRequest:
        return offset_commit.OffsetCommitRequest(
            group_id=self._scene.group_id,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member_id,
            group_instance_id=who.instance_id,
            retention_time_ms=retention_ms,
            topics=tuple(
                offset_commit.OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self._scene.admin.topic_id(name),
                    partitions=tuple(
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(name, index)].offset,
                            committed_leader_epoch=offsets[
                                TopicPartition(name, index)
                            ].leader_epoch,
                            committed_metadata=offsets[TopicPartition(name, index)].metadata,
                        )
                        for index in indexes
                    ),
                )
                for name, indexes in requests.by_topic(offsets).items()
            ),
        )

    def _codes(
        self, answer: Any, asked: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the code of each partition; the answer has to name those that were asked for."""
        codes = {
            TopicPartition(self._name(topic), int(p.partition_index)): p.error_code
            for topic in answer.topics
            for p in topic.partitions
        }
        self._scene.expect(
            codes.keys() == set(asked), f"asked for {sorted(asked)}, got {sorted(codes)}"
        )
        return codes

    def _name(self, topic: Any) -> str:
        """Return a topic's name, by its id where the version has no names."""
        views = self._scene.admin.topics.items()
        topic_id = getattr(topic, "topic_id", None)
        by_id = next((name for name, view in views if view.topic_id == topic_id), "")
        return str(topic.name) if topic.name is not None else by_id

    # --- fetching ---------------------------------------------------------------------

    async def check(self, *, stable: bool = False, who: Who = ALONE) -> None:
        """Fetch some or all offsets, and compare them. `stable`: as transactions' readers do."""
        rng = self._scene.rng
        wants_all = rng.random() < 0.4
        known = await self.places()
        asked = None if wants_all else rng.sample(known, min(2, len(known)))
        beside = rng.random() < 0.3
        await self._scene.look(lambda: self._check(asked, stable, beside, who))

    async def _check(
        self, asked: Sequence[TopicPartition] | None, stable: bool, beside: bool, who: Who
    ) -> None:
        scene = self._scene
        own = self._group(scene.group_id, asked, who)
        groups = (self._group(_NO_GROUP, asked, ALONE), own) if beside else (own,)
        oldest = max(_STABLE_MIN * stable, _GROUPS_MIN * beside, _ALL_MIN * (asked is None))
        answer, version = await scene.ask(
            scene.admin,
            ApiKey.OFFSET_FETCH,
            offset_fetch.OffsetFetchRequest(groups=groups, require_stable=stable),
            at_least=oldest,
        )
        for group in answer.groups:
            scene.sure(group.error_code)
            for topic in group.topics:
                for p in topic.partitions:
                    scene.sure(p.error_code)
        ids = [group.group_id for group in answer.groups]
        scene.expect(
            version < _GROUPS_MIN or ids == [group.group_id for group in groups],
            f"OffsetFetch of {[group.group_id for group in groups]} gave {ids}",
        )
        for group in answer.groups:
            is_own = version < _GROUPS_MIN or group.group_id == scene.group_id
            found = {
                TopicPartition(self._name(topic), int(p.partition_index)): (
                    Commit(
                        int(p.committed_offset), int(p.committed_leader_epoch), p.metadata or ""
                    ),
                    p.error_code,
                )
                for topic in group.topics
                for p in topic.partitions
            }
            due = self._due(asked, stable, version) if is_own else self._none(asked)
            if is_own:
                self._let_expire(due, found)
            what = f"OffsetFetch v{version} of {group.group_id}, stable={stable}"
            scene.expect(found == due, f"{what} gave {found}, committed is {due}")

    def _due(
        self, asked: Sequence[TopicPartition] | None, stable: bool, version: int
    ) -> dict[TopicPartition, tuple[Commit, ErrorCode]]:
        """Return what OffsetFetch has to show."""
        held = self.pending if stable else {}
        due = {}
        for at in {**self.committed, **held} if asked is None else asked:
            commit = self.committed.get(at, _NOTHING)
            if version < _EPOCH_FETCHED_MIN:
                commit = commit._replace(leader_epoch=-1)
            due[at] = commit, ErrorCode.none
            if at in held:
                due[at] = _NOTHING, ErrorCode.unstable_offset_commit
        return due

    def _let_expire(
        self,
        due: dict[TopicPartition, tuple[Commit, ErrorCode]],
        found: Mapping[TopicPartition, object],
    ) -> None:
        """Take over what a sweep has deleted; behind the next sweep it may not be there."""
        now_ms, sweep_ms = self._scene.now_ms(), float(self._scene.context.get("sweep_ms", 6e5))
        nothing = _NOTHING, ErrorCode.none
        for at in [at for at in due if at in self.expires_ms and at not in self.pending]:
            earliest_ms, latest_ms = self.expires_ms[at]
            is_gone = found.get(at, nothing) == nothing
            if now_ms < earliest_ms or not is_gone:
                is_late = self.free_ms is not None and (
                    now_ms > max(latest_ms, self.free_ms) + sweep_ms + SLACK_MS
                )
                began_s = self._scene.context.now_s() - (now_ms - earliest_ms) / 1000
                self._scene.expect(
                    not is_late or self._scene.is_disturbed(began_s),
                    f"the offset of {at} is there {now_ms - latest_ms:.0f} ms after its retention",
                )
                continue
            del self.expires_ms[at], self.committed[at]
            if at in found:
                due[at] = nothing
            else:
                del due[at]

    @staticmethod
    def _none(
        asked: Sequence[TopicPartition] | None,
    ) -> dict[TopicPartition, tuple[Commit, ErrorCode]]:
        return dict.fromkeys(asked or (), (_NOTHING, ErrorCode.none))

    def _group(
        self, group_id: str, asked: Sequence[TopicPartition] | None, who: Who
    ) -> offset_fetch.OffsetFetchRequestGroup:
        topics = None
        if asked is not None:
            topics = tuple(
                offset_fetch.OffsetFetchRequestTopics(
                    name=name,
                    topic_id=self._scene.admin.topic_id(name),
                    partition_indexes=tuple(indexes),
                )
                for name, indexes in requests.by_topic(asked).items()
            )
        return offset_fetch.OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=who.member_id or None,
            member_epoch=who.generation,
            topics=topics,
        )

    # --- losing them ------------------------------------------------------------------

    async def delete(self, subscribed: Collection[str], due: ErrorCode = ErrorCode.none) -> None:
        """Delete the offsets of two partitions; those of subscribed topics stay."""
        scene = self._scene
        known = await self.places()
        asked = scene.rng.sample(known, min(2, len(known)))
        request = offset_delete.OffsetDeleteRequest(
            group_id=scene.group_id,
            topics=tuple(
                offset_delete.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=tuple(
                        offset_delete.OffsetDeleteRequestPartition(partition_index=index)
                        for index in indexes
                    ),
                )
                for name, indexes in requests.by_topic(asked).items()
            ),
        )
        answer, _ = await scene.ask(scene.admin, ApiKey.OFFSET_DELETE, request)
        code = scene.sure(answer.error_code)
        scene.expect(code is due, f"OffsetDelete got {code.name}, not {due.name}")
        if due is not ErrorCode.none:
            return
        refused = ErrorCode.group_subscribed_to_topic
        for at, outcome in self._codes(answer, asked).items():
            expected = refused if at.topic in subscribed else ErrorCode.none
            scene.expect(
                scene.sure(outcome) is expected,
                f"OffsetDelete of {at} got {outcome.name}, not {expected.name}",
            )
            if expected is ErrorCode.none:
                self.committed.pop(at, None)
                self.expires_ms.pop(at, None)
