"""Simulates what a reader knows of leaders: whether its position holds, and whom it asks.

A log loses its end now and then, and is made again under its name; what was read must still be
there wherever a position is agreed (KIP-320). Brokers tell of topics late and in any order: what is
known is compared with a list of all that was told. Used by `readers`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from oncelog.client.machines.metadata import MetadataCache
from oncelog.client.machines.nearest import NearestReplicas
from oncelog.client.machines.positions import Diverged, Leadership, Position, compare, under
from oncelog.client.values import Node, PartitionDescription, TopicDescription
from oncelog.core.ids import TopicPartition

__all__ = ["nearest", "places", "positions", "told"]

STEPS_COUNT: Final = 40
TELLS_COUNT: Final = 25
MAX_AGE_MS: Final = 100
NODES_COUNT: Final = 4


def places(rng: random.Random) -> Iterator[str]:
    """Simulate positions, metadata and nearer replicas."""
    for text in positions(rng):
        yield f"a position: {text}"
    for text in told(rng):
        yield f"metadata: {text}"
    for text in nearest(rng):
        yield f"a nearer replica: {text}"


def positions(rng: random.Random) -> Iterator[str]:
    """Simulate one reader of a log that loses its end; stop at what is wrong."""
    yield from _ValidatedReader(rng).live()


class _ValidatedReader:
    """A log, whose leaders change, and a reader, which is told of them late."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._is_vague = rng.random() < 0.2
        """Whether brokers may tell neither epochs nor ids."""
        self._log: list[tuple[int, int]] = []
        """Leader epoch and value of each record."""
        self._leader = Leadership(UUID(int=1), 0)
        self._told = self._leader
        self._position = Position(0)
        self._had: dict[int, tuple[int, int]] = {}
        self._had_of = self._leader.topic_id
        """Which topic it was read from."""
        self._serial = 0

    def live(self) -> Iterator[str]:
        for step in range(STEPS_COUNT):
            self._change()
            if self._rng.random() < 0.6:
                for text in self._read():
                    yield f"step {step}: {text}"
                    return

    def _change(self) -> None:
        rng = self._rng
        chance = rng.random()
        topic_id, epoch = self._leader
        if chance < 0.5:
            for _ in range(rng.choice((1, 2, 3))):
                self._serial += 1
                self._log.append((epoch, self._serial))
        elif chance < 0.7:
            self._leader = Leadership(topic_id, epoch + rng.choice((1, 2)))
            if rng.random() < 0.5:
                del self._log[rng.randint(0, len(self._log)) :]
        elif chance < 0.74:
            self._serial += 1
            self._leader = Leadership(UUID(int=self._serial + 1), rng.choice((0, epoch)))
            self._log = []
        if rng.random() < 0.6:
            self._told = self._leader
            if self._is_vague and rng.random() < 0.4:
                topic_id, epoch = self._leader
                vague = Leadership(topic_id, -1), Leadership(None, epoch), Leadership(None, -1)
                self._told = rng.choice(vague)

    def _read(self) -> Iterator[str]:
        before, now = self._position, self._told
        found = under(before, now)
        is_other = before.validated is not None and before.validated.topic_id != now.topic_id
        if before.validated == now:
            due: Position | None = before
        elif is_other:
            due, self._had = Position(before.offset, -1, now), {}
        elif before.epoch < 0 or now.leader_epoch < 0:
            due = Position(before.offset, before.epoch, now)
        else:
            due = None
        if found != due:
            yield f"{before} becomes {found} under {now}, not {due}"
            return
        if found is not None:
            self._position = found
            self._take()
        elif now == self._leader:
            yield from self._ask()
        # A leader refuses those who think that it leads in another epoch.

    def _ask(self) -> Iterator[str]:
        """Ask the leader where the epoch ends, and apply its answer."""
        at = self._position
        epoch = max((each for each, _ in self._log if each <= at.epoch), default=-1)
        end = sum(each <= epoch for each, _ in self._log) if epoch >= 0 else -1
        if epoch < 0 and self._rng.random() < 0.5:
            epoch, end = (at.epoch, -1) if self._rng.random() < 0.5 else (-1, at.offset)
            is_known = False
        else:
            is_known = epoch >= 0
        found = compare(at, epoch, end, self._leader)
        # The position is in the leader's largest epoch up to its own from now on.
        due: Position | Diverged = Position(at.offset, epoch, self._leader)
        if not is_known:
            due = Diverged(-1, -1)
        elif end < at.offset:
            due = Diverged(end, epoch)
        if found != due:
            yield f"{at} is {found} where epoch {epoch} ends at {end}, not {due}"
        elif isinstance(found, Position):
            self._position = found
            yield from self._judge(at.offset)
        elif found.epoch < 0:
            self._position, self._had = Position(0), {}
        else:
            self._position = Position(found.end_offset, found.epoch)
            yield from self._judge(found.end_offset)
            differs = self._had.get(found.end_offset)
            if differs is not None and differs in self._log:
                yield f"{at} is cut to {found.end_offset}, where the log has what was read"
            self._had = {at: each for at, each in self._had.items() if at < found.end_offset}

    def _judge(self, end: int) -> Iterator[str]:
        """What was read up to `end` must be in the log."""
        if self._had_of != self._leader.topic_id:
            # A position that was just cut names no topic, as a committed one.
            self._had = {}
        if self._is_vague:
            return
        gone = [at for at, each in self._had.items() if at < end and self._log[at] != each]
        if gone:
            yield f"the log is agreed on up to {end}, but has other records at {gone}"

    def _take(self) -> None:
        at = self._position
        told = at.validated
        if told is None or told.leader_epoch not in (-1, self._leader.leader_epoch):
            return
        if told.topic_id not in (None, self._leader.topic_id):
            return
        if at.offset > len(self._log):
            self._position, self._had = Position(0), {}
            return
        if self._had_of != self._leader.topic_id:
            self._had, self._had_of = {}, self._leader.topic_id
        records = self._log[at.offset : at.offset + self._rng.choice((1, 2, 5))]
        for offset, record in enumerate(records, at.offset):
            self._had[offset] = record
        if records:
            self._position = Position(at.offset + len(records), records[-1][0], told)


# --- metadata


def told(rng: random.Random) -> Iterator[str]:
    """Simulate what is told of some topics; stop at what is wrong."""
    yield from _ToldTopics(rng).live()


class _ToldTopics:
    """Topics that change, and all that was told of each since it was forgotten."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._real = MetadataCache()
        self._has_ids = rng.random() < 0.8
        self._views: dict[str, list[TopicDescription | None]] = {"a": [None], "b": [None]}
        """What a broker may tell of each topic by now, the newest last."""
        self._told: dict[str, list[TopicDescription]] = {"a": [], "b": []}
        self._stale: set[str] = set()
        self._missing: set[str] = set()
        self._nodes: dict[int, Node] = {}
        self._cluster: tuple[str | None, int] = (None, -1)
        self._serial = 0

    def live(self) -> Iterator[str]:
        for step in range(TELLS_COUNT):
            self._change()
            texts = [*self._tell(), *self._judge()]
            if texts:
                yield from (f"step {step}: {text}" for text in texts)
                return

    def _change(self) -> None:
        rng = self._rng
        name = rng.choice(sorted(self._views))
        last = self._views[name][-1]
        chance = rng.random()
        if last is None or chance < 0.1:
            self._serial += 1
            topic_id = UUID(int=self._serial) if self._has_ids else None
            count = rng.choice((1, 2, 3))
            made = tuple(self._partition(index, 0) for index in range(count))
            self._views[name].append(TopicDescription(name, topic_id, made, rng.random() < 0.2))
        elif chance < 0.15:
            self._views[name].append(None)
        elif chance < 0.8:
            moved = list(last.partitions)
            index = rng.randrange(len(moved))
            epoch = max(each.leader_epoch for each in moved) + 1
            moved[index] = self._partition(index, -1 if rng.random() < 0.1 else epoch)
            if rng.random() < 0.15:
                moved.append(self._partition(len(moved), 0))
            view = TopicDescription(name, last.topic_id, tuple(moved), last.is_internal)
            self._views[name].append(view)

    def _partition(self, index: int, epoch: int) -> PartitionDescription:
        leader = self._rng.choice((-1, 0, 1, 2, 3))
        return PartitionDescription(index, leader, epoch, (0, 1, self._rng.randrange(9)), (0,))

    def _tell(self) -> Iterator[str]:
        rng, real = self._rng, self._real
        name = rng.choice(sorted(self._views))
        chance = rng.random()
        if chance < 0.15:
            ids = sorted(rng.sample(range(NODES_COUNT), rng.randint(0, NODES_COUNT)), reverse=True)
            nodes = [Node(each, f"h{each % 2}", 90 + each) for each in ids]
            self._nodes = {node.node_id: node for node in nodes}
            self._cluster = rng.choice(((None, -1), ("c", 2), ("d", 0)))
            real.update_cluster(nodes, *self._cluster)
        elif chance < 0.25:
            self._stale.add(name)
            real.mark_stale(name)
        elif chance < 0.3:
            self._told[name] = []
            self._stale.discard(name)
            real.forget_topic(name)
        else:
            yield from self._answer(name, rng.choice(self._views[name][-3:]))

    def _answer(self, name: str, view: TopicDescription | None) -> Iterator[str]:
        """A broker tells of a topic, or that it does not know it."""
        before, was_fresh = self._shown(name), self._is_fresh(name)
        self._stale.discard(name)
        if view is None:
            self._told[name] = []
            self._missing.add(name)
            self._real.mark_missing(name)
            return
        if before is not None and before.topic_id != view.topic_id:
            self._told[name] = []
        self._told[name].append(view)
        self._missing.discard(name)
        found, due = self._real.update_topic(view), was_fresh or before != self._shown(name)
        if found != due:
            yield f"{view} is taken as {found}, not {due}, after {before}"

    def _shown(self, name: str) -> TopicDescription | None:
        """Of each partition what was told with the largest epoch, and of these the last."""
        told = self._told[name]
        if not told:
            return None
        shown = []
        for each in told[-1].partitions:
            known: list[PartitionDescription] = []
            for view in told:
                known += view.partitions[each.index : each.index + 1]
                if len(view.partitions) <= each.index or known[-1].leader_epoch < 0:
                    known = known[-1:] if len(view.partitions) > each.index else []
            largest = max(one.leader_epoch for one in known)
            shown.append([one for one in known if one.leader_epoch == largest][-1])
        last = told[-1]
        return TopicDescription(name, last.topic_id, tuple(shown), last.is_internal)

    def _is_fresh(self, name: str) -> bool:
        shown = self._shown(name)
        is_led = shown is not None and all(each.leader >= 0 for each in shown.partitions)
        return is_led and name not in self._stale

    def _judge(self) -> Iterator[str]:
        real, rng = self._real, self._rng
        found: tuple[object, ...] = real.nodes, (real.cluster_id, real.controller_id), real.missing
        due: tuple[object, ...] = self._nodes, self._cluster, self._missing
        if found != due:
            yield f"nodes, cluster and missing topics are {found}, not {due}"
        peer, turn, failing = f"h{rng.randrange(2)}:{90 + rng.randrange(4)}", rng.randrange(9), 1
        others = [
            each
            for each, node in sorted(self._nodes.items())
            if f"{node.host}:{node.port}" != peer and each != failing
        ]
        another = real.another(peer, turn, lambda address: int(address == ("h1", 91)))
        if another != (others[turn % len(others)] if others else None):
            yield f"another than {peer} is {another} in turn {turn}, of {others}"
        for name in self._views:
            yield from self._judge_topic(name, self._shown(name))

    def _judge_topic(self, name: str, shown: TopicDescription | None) -> Iterator[str]:
        real = self._real
        partitions: Sequence[PartitionDescription] = () if shown is None else shown.partitions
        topic_id = None if shown is None else shown.topic_id
        found = (
            *(real.topics.get(name), real.is_fresh(name)),
            *(real.partition_count(name), real.topic_id(name)),
        )
        count = None if shown is None else len(partitions)
        due = (shown, self._is_fresh(name), count, topic_id)
        if found != due:
            yield f"topic, freshness, count and id are {found}, not {due}"
        for index in (-1, 0, 1, 2, 5):
            at = TopicPartition(name, index)
            known = partitions[index] if 0 <= index < len(partitions) else None
            leader = known.leader if known is not None and known.leader in self._nodes else None
            usable = None if name in self._stale else leader
            leadership = Leadership(topic_id, -1 if known is None else known.leader_epoch)
            shows = (real.partition(at), real.leader(at), real.usable_leader(at))
            if (*shows, real.leadership(at)) != (known, leader, usable, leadership):
                yield f"{at} is {shows}, {real.leadership(at)}, not {known}, {leader}, {usable}"


# --- nearer replicas


def nearest(rng: random.Random) -> Iterator[str]:
    """Name nearer replicas, let time pass and brokers go; compare where is read from."""
    real = NearestReplicas(MAX_AGE_MS)
    now_ms = 0.0
    named: dict[TopicPartition, tuple[int, float]] = {}
    for step in range(STEPS_COUNT):
        now_ms += rng.choice((0, 1, MAX_AGE_MS / 2, MAX_AGE_MS))
        at = TopicPartition("t", rng.randrange(2))
        chance = rng.random()
        if chance < 0.4:
            broker_id = rng.randrange(NODES_COUNT)
            real.named(at, broker_id, now_ms)
            named[at] = broker_id, now_ms
        elif chance < 0.5:
            was_named = named.pop(at, None) is not None
            if real.forget(at) != was_named:
                yield f"step {step}: forgetting tells {not was_named}"
                return
        else:
            live = set(rng.sample(range(NODES_COUNT), 3))
            leader = rng.randrange(NODES_COUNT)
            broker_id, since_ms = named.get(at, (leader, now_ms))
            if now_ms - since_ms >= MAX_AGE_MS or broker_id not in live:
                # It is not used again later, when it is back.
                named.pop(at, None)
                broker_id = leader
            found = real.source(at, leader, live, now_ms)
            if found != broker_id:
                yield f"step {step}: {at} is read from {found}, not {broker_id}"
                return
