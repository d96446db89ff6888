"""The runtime around shards: loading, commitment, timers, requests whose connection is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from oncelog.broker.coordination.context import CoordinatorContext
from oncelog.broker.coordination.runtime import CoordinatorRuntime
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.shard import (
    AppendProducer,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EndTransactionMarker,
    EventContext,
    RecordContext,
    Step,
    Token,
    replies_to,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.core.pending import unchanged
from oncelog.runtime.disk import Disk, SystemDisk
from tests.support.logged import said_by
from tests.unit.broker.support import (
    ME,
    NOW_MS,
    TOPIC_ID,
    HandLoop,
    assignment,
    make_partition,
)

OTHER = 2
PRODUCER = ProducerId(5)
EPOCH = ProducerEpoch(0)
TOPIC = "__internal"


@dataclass(frozen=True)
class Put:
    """Write one record for `id`, answer with its key, release `effect`."""

    id: str
    key: bytes = b"k"
    effect: str = ""
    producer: AppendProducer | None = None


class Memory(CoordinatorShard[Put, object, str]):
    """Remembers keys in the order in which they were applied."""

    def __init__(self) -> None:
        self.applied: list[bytes] = []
        self.decided_ms: list[int] = []
        self.markers: list[EndTransactionMarker] = []
        self.deadline_ms: int | None = None
        self.due: list[Put] = []
        self.when_dropped: Put | None = None

    def dropped(self, event: Put, token: Token) -> Put | None:
        return self.when_dropped

    def id_of(self, event: Put) -> str | None:
        return event.id

    def decide(self, event: Put, context: EventContext) -> Decision[Put, object, str]:
        self.decided_ms.append(context.now_ms)
        return Decision(
            records=(CoordinatorRecord(event.key, b"v"),),
            replies=replies_to(context.token, event.key),
            effects=(event.effect,) if event.effect else (),
            id=event.id,
            producer=event.producer,
        )

    def replay(self, step: Step, context: RecordContext) -> None:
        if isinstance(step, EndTransactionMarker):
            self.markers.append(step)
        elif step.key == b"damaged":
            raise ProtocolError(ErrorCode.corrupt_message, "what is this")
        else:
            self.applied.append(step.key)

    def failed(
        self, event: Put, error: ErrorCode, context: EventContext
    ) -> Decision[Put, object, str]:
        return reply_at_once(context, error)

    def tick(self, now_ms: int) -> list[Put]:
        due, self.due, self.deadline_ms = self.due, [], None
        return due

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


MemoryRuntime: TypeAlias = CoordinatorRuntime[Put, object, str]


class Clock:
    def __init__(self) -> None:
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> float:
        return float(self.at_ms)


class Bench:
    """A runtime over one partition."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = (ME,)) -> None:
        self.partition: Partition = make_partition(folder, HandLoop(), isr, TOPIC)
        self.machines: list[Memory] = []
        self.effects: list[object] = []
        self.deleted: dict[str, dict[UUID, tuple[int, ...]]] = {}
        clock: Any = Clock()
        self.clock = clock
        self.disk: Disk = SystemDisk()
        self.runtime = self.make_runtime()

    def make_runtime(self) -> MemoryRuntime:
        partitions: Any = self
        return CoordinatorRuntime(
            TOPIC,
            partition_count_default=1,
            partitions=partitions,
            make_shard=self._make,
            effect_handler=lambda _led, effect: self.effects.append(effect),
            producer_ids=partitions,
            topics_deleted=lambda _image, names: Put("topics", " ".join(sorted(names)).encode()),
        )

    def _make(self, _partition: Partition) -> Memory:
        self.machines.append(Memory())
        return self.machines[-1]

    def get(self, _topic: str, _index: int) -> Partition:
        return self.partition

    def follow(self, runtime: MemoryRuntime | None = None) -> None:
        topic = TopicImage(TOPIC, TOPIC_ID, (PartitionImage(ME, 0, (ME,), (ME,)),))
        (runtime or self.runtime).apply(
            ImageDelta(created=(topic,)), self.image(topic), CoordinatorMetadata()
        )

    def elect_again(self, epoch: int = 1) -> None:
        self.partition.assign(assignment(epoch=epoch), 0)
        self.follow()

    def image(self, *topics: TopicImage) -> MetadataImage:
        return MetadataImage(cluster_id="", topics=topics, deleted=self.deleted)

    def lose_topics(self, *names: str) -> None:
        """The metadata shows topics no more."""
        lost = tuple(TopicImage(name, TOPIC_ID, ()) for name in names)
        self.runtime.apply(ImageDelta(deleted=lost), self.image(), CoordinatorMetadata())

    def delete_topics(self, *names: str) -> None:
        """The metadata names topics deleted."""
        self.deleted |= {name: {TOPIC_ID: (1,)} for name in names}
        self.lose_topics(*names)

    def ask(self, event: Put) -> Any:
        return self.runtime.ask("id", event, unchanged, lambda error: ("refused", error))


async def test_a_request_is_answered_within_the_call_on_a_lone_replica(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    answer = bench.ask(Put("id", b"a", "effect"))
    assert answer.done
    assert answer.result == b"a"
    assert bench.machines[0].applied == [b"a"]
    assert bench.effects == ["effect"]


async def test_nothing_leaves_before_the_high_watermark_passes_the_record(tmp_path: Path) -> None:
    """D2: the base of INV-4 and INV-6."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    answer = bench.ask(Put("id", b"a", "effect"))
    assert not answer.done
    assert bench.machines[0].applied == []
    assert bench.effects == []
    bench.partition.follower_fetched(OTHER, 1, 0)
    assert answer.result == b"a"
    assert bench.effects == ["effect"]


@pytest.mark.parametrize("is_open", [True, False])
async def test_inv6_an_append_that_waited_is_for_the_transaction_it_was_verified_for(
    tmp_path: Path, is_open: bool
) -> None:
    """That transaction's marker comes between: the next one of the same producer is not touched."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    log = bench.partition.log
    if is_open:
        bench.ask(Put("first", producer=AppendProducer(PRODUCER, EPOCH)))
    permit = log.producers.verifications.permit(PRODUCER, EPOCH, bumps_epoch=False, now_ms=NOW_MS)
    bench.ask(Put("id"))
    parked = bench.ask(Put("id", b"parked", producer=AppendProducer(PRODUCER, EPOCH, permit)))
    bench.partition.append_marker(
        PRODUCER, EPOCH, 0, commit=True, now_ms=NOW_MS, transaction_version=0
    )
    bench.partition.follower_fetched(OTHER, log.log_end_offset, 0)
    assert parked.result is ErrorCode.invalid_txn_state
    assert not log.producers.transaction_is_open(PRODUCER, EPOCH)


async def test_inv5_an_append_that_was_fenced_while_it_waited_learns_of_that(
    tmp_path: Path,
) -> None:
    """KAFKA-19690: the epoch is compared before the transaction."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    log = bench.partition.log
    permit = log.producers.verifications.permit(PRODUCER, EPOCH, bumps_epoch=False, now_ms=NOW_MS)
    bench.ask(Put("id"))
    parked = bench.ask(Put("id", b"parked", producer=AppendProducer(PRODUCER, EPOCH, permit)))
    bench.partition.append_marker(
        PRODUCER, EPOCH + 1, 0, commit=False, now_ms=NOW_MS, transaction_version=0
    )
    bench.partition.follower_fetched(OTHER, log.log_end_offset, 0)
    assert parked.result is ErrorCode.invalid_producer_epoch


async def test_an_append_that_waited_is_written_while_its_transaction_stands(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    log = bench.partition.log
    permits = [
        log.producers.verifications.permit(PRODUCER, EPOCH, bumps_epoch=False, now_ms=NOW_MS)
        for _ in range(2)
    ]
    bench.ask(Put("id"))
    parked = [
        bench.ask(Put("id", b"parked", producer=AppendProducer(PRODUCER, EPOCH, permit)))
        for permit in permits
    ]
    for _ in range(3):
        bench.partition.follower_fetched(OTHER, log.log_end_offset, 0)
    assert [answer.result for answer in parked] == [b"parked", b"parked"]
    assert log.producers.transaction_is_open(PRODUCER, EPOCH)


async def test_a_new_leader_replays_the_log_and_then_decides_requests(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.deleted["t"] = {TOPIC_ID: (1,)}
    bench.follow()
    for key in (b"a", b"b", b"c"):
        bench.ask(Put("id", key))
    bench.elect_again()
    held, gone = bench.ask(Put("id", b"d")), bench.ask(Put("id", b"gone"))
    gone.drop()
    assert bench.runtime.look("id", Put("id")) is None
    await bench.runtime.loaded()
    assert bench.machines[1].applied == [b"a", b"b", b"c", b"t", b"d"]
    assert held.result == b"d"


async def test_a_request_is_refused_when_its_load_has_taken_too_long(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.elect_again()
    held = bench.ask(Put("id", b"b"))
    bench.clock.at_ms += PARKED_REQUEST_WAIT_MS_MAX
    bench.runtime.clock_moved()
    assert held.result is ErrorCode.coordinator_load_in_progress
    await bench.runtime.loaded()
    assert bench.machines[1].applied == [b"a"]


async def test_markers_reach_the_machine_in_replay_and_when_committed(tmp_path: Path) -> None:
    """INV-6."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    bench.partition.append_marker(5, 0, 0, commit=True, now_ms=NOW_MS, transaction_version=0)
    assert bench.machines[0].markers == []
    bench.partition.follower_fetched(OTHER, 1, 0)
    assert bench.machines[0].markers == [(0, 5, 0, True)]
    bench.elect_again()
    await bench.runtime.loaded()
    assert bench.machines[1].markers == [(0, 5, 0, True)]


async def test_a_committed_record_that_cannot_be_applied_ends_the_shard_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D2: as in a load. It is no error of the client whose connection it came by."""
    bench = Bench(tmp_path)
    bench.follow()
    assert bench.ask(Put("id", b"damaged")).result is ErrorCode.not_coordinator
    assert bench.runtime.is_damaged("id")
    (line,) = caplog.messages
    assert "offset 0: CORRUPT_MESSAGE: what is this" in line
    assert "oncelog log repair" in line


async def test_losing_leadership_answers_those_who_wait(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    answer = bench.ask(Put("id"))
    bench.partition.assign(assignment((OTHER,), (ME, OTHER), leader=OTHER, epoch=1), 0)
    bench.follow()
    assert answer.result is ErrorCode.not_coordinator
    assert bench.ask(Put("id")) == ("refused", ErrorCode.not_coordinator)


async def test_a_parked_request_is_dropped_with_its_connection(tmp_path: Path) -> None:
    """D7: it is never decided, and harms nobody who comes later."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    first = bench.ask(Put("id", b"first"))
    parked = bench.ask(Put("id", b"parked"))
    assert bench.runtime.parked_count == 1
    parked.drop()
    assert bench.runtime.parked_count == 0
    bench.partition.follower_fetched(OTHER, 1, 0)
    assert first.result == b"first"
    assert not parked.done
    assert bench.partition.log.log_end_offset == 1


async def test_a_decided_request_goes_on_when_its_connection_closes(tmp_path: Path) -> None:
    """D7: its append may be committed already; only the answer is lost."""
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    answer = bench.ask(Put("id", b"a", "effect"))
    answer.drop()
    bench.partition.follower_fetched(OTHER, 1, 0)
    assert not answer.done
    assert bench.machines[0].applied == [b"a"]
    assert bench.effects == ["effect"]


async def test_a_shard_may_react_to_a_closed_connection_and_is_asked_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    answer = bench.ask(Put("id", b"a"))
    bench.machines[0].when_dropped = Put("id", b"gone")
    answer.drop()
    answer.drop()
    bench.partition.follower_fetched(OTHER, 1, 0)
    bench.partition.follower_fetched(OTHER, 2, 0)
    assert bench.machines[0].applied == [b"a", b"gone"]


async def test_too_few_replicas_fail_the_append_and_its_request(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    bench.partition.state.has_enough_replicas = False
    assert bench.ask(Put("id")).result is ErrorCode.not_enough_replicas
    assert bench.partition.log.log_end_offset == 0


async def test_what_is_due_is_submitted_at_the_deadline(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    machine = bench.machines[0]
    machine.due, machine.deadline_ms = [Put("id", b"timer", "rang")], NOW_MS
    bench.ask(Put("id", b"a"))
    while not bench.effects:  # noqa: ASYNC110 - the timer is already due
        await asyncio.sleep(0)
    assert machine.applied == [b"a", b"timer"]


@pytest.mark.parametrize(("late_ms", "is_stall"), [(1_000, False), (1_001, True), (90_000, True)])
async def test_nothing_is_due_before_what_came_during_a_stall_is_read(
    tmp_path: Path, late_ms: int, is_stall: bool
) -> None:
    """SIGSTOP, or a callback that took long: heartbeats are in the sockets."""
    bench = Bench(tmp_path)
    loop: Any = HandLoop()
    bench.runtime.loop = loop
    bench.follow()
    machine = bench.machines[0]

    def go_on(passed_ms: int) -> None:
        bench.clock.at_ms += passed_ms
        loop.advance(passed_ms / 1000)

    machine.due, machine.deadline_ms = [Put("id", b"expired")], NOW_MS + 5_000
    bench.ask(Put("id", b"a"))
    go_on(5_000 + late_ms)
    assert machine.applied == ([b"a"] if is_stall else [b"a", b"expired"])
    go_on(60_000)  # Again; each is waited out.
    bench.ask(Put("id", b"heartbeat"))
    go_on(499)
    go_on(1)
    assert machine.applied[2 if not is_stall else 1] == b"heartbeat"
    assert (machine.applied[-1] == b"expired") is is_stall


async def test_an_event_from_an_effect_is_carried_out_after_the_outer_one(tmp_path: Path) -> None:
    """As markers do: what they report goes back into the shard that is just being run."""
    bench = Bench(tmp_path)
    seen: list[str] = []

    def effect_handler(coordinator: CoordinatorContext[Put, object, str], effect: str) -> None:
        seen.append(f"begin {effect}")
        if effect == "outer":
            coordinator.submit(Put("id", b"inner", "inner"))
        seen.append(f"end {effect}")

    bench.runtime.effect_handler = effect_handler
    bench.follow()
    assert bench.ask(Put("id", b"outer", "outer")).result == b"outer"
    assert seen == ["begin outer", "end outer", "begin inner", "end inner"]
    assert bench.machines[0].applied == [b"outer", b"inner"]


async def test_what_is_decided_after_a_wait_is_decided_by_the_time_of_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (ME, OTHER))
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.ask(Put("id", b"parked"))
    bench.clock.at_ms += 5_000
    bench.partition.follower_fetched(OTHER, 1, 0)
    assert bench.machines[0].decided_ms == [NOW_MS, NOW_MS + 5_000]


async def test_a_timer_that_fails_is_told_to_the_owner(tmp_path: Path) -> None:
    class Broken(Memory):
        def tick(self, now_ms: int) -> list[Put]:
            raise RuntimeError("a bug of ours")

    bench = Bench(tmp_path)
    bench.runtime.make_shard = lambda _partition: Broken()
    bench.follow()
    coordinator = next(iter(bench.runtime._coordinators.values()))
    coordinator.tick()
    with pytest.raises(RuntimeError, match="a bug of ours"):
        await asyncio.wait_for(bench.runtime.run(), 5)


async def test_a_load_ends_with_the_leadership_that_it_is_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not go on, and then call the log damaged."""
    bench = Bench(tmp_path)
    bench.follow()
    bench.ask(Put("id", b"a"))
    bench.elect_again()
    bench.elect_again(epoch=2)
    await bench.runtime.loaded()
    await asyncio.sleep(0)
    assert bench.machines[1].applied == []
    assert bench.machines[2].applied == [b"a"]
    assert said_by(caplog) == []


async def test_an_earlier_deadline_replaces_the_one_that_is_armed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.follow()
    machine = bench.machines[0]
    machine.deadline_ms = NOW_MS + 60_000
    bench.ask(Put("id", b"a"))
    machine.due, machine.deadline_ms = [Put("id", b"timer", "rang")], NOW_MS
    bench.ask(Put("id", b"b"))
    async with asyncio.timeout(5):
        while not bench.effects:  # noqa: ASYNC110 - the timer is already due
            await asyncio.sleep(0)
    assert machine.applied == [b"a", b"b", b"timer"]
