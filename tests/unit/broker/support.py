"""Fakes for the broker's parts: a loop that runs by hand, and partitions over real logs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import UUID

from oncelog.broker.partitions.delayed import FetchPurgatory
from oncelog.broker.partitions.disk_queue import DiskQueue
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.controller.image import ImageDelta, MetadataImage, TopicImage
from oncelog.core.ids import TopicPartition
from oncelog.protocol.record import Record, build_batch
from oncelog.replication.replica import Assignment, OfflineState
from oncelog.runtime.disk import Lane, StorageFailure, SystemDisk
from oncelog.storage import LogConfig, PartitionLog

ME = 1
NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=9)


class Timer:
    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandLoop:
    """`call_soon` and `call_later` of an event loop; a test says when time passes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> Timer:
        timer = Timer(self.now_s + delay_s, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.at_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.at_s > self.now_s]
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()
        self.run()


def make_partition(
    folder: Path, loop: HandLoop, isr: tuple[int, ...] = (ME,), topic: str = "t", number: int = 0
) -> Partition:
    name = TopicPartition(topic, number)
    log = PartitionLog.open(SystemDisk(), str(folder / str(name)), name, LogConfig(), NOW_MS)
    state = OfflineState.unassigned(ME, TOPIC_ID, log_end_offset=log.log_end_offset)
    failures: list[StorageFailure] = []
    made = Partition(
        name,
        log,
        state,
        FetchPurgatory(loop),  # type: ignore[arg-type]
        failures.append,
        DiskQueue(loop, SystemDisk(), Lane.SYNC, 1),  # type: ignore[arg-type]
    )
    made.assign(assignment(isr), 0)
    return made


def naming(deleted: Iterable[TopicImage]) -> MetadataImage:
    """An image that names these topics deleted."""
    return MetadataImage(
        cluster_id="c", deleted={topic.name: {topic.topic_id: (ME,)} for topic in deleted}
    )


async def apply(
    partitions: PartitionManager, delta: ImageDelta, image: MetadataImage | None = None
) -> dict[TopicPartition, StorageFailure]:
    """Apply a step, folders and all; `image` names what it deletes unless another is given."""
    work = await partitions.take_roles(delta, image or naming(delta.deleted))
    return await partitions.make_folders(work)


def assignment(
    isr: tuple[int, ...] = (ME,),
    replicas: tuple[int, ...] | None = None,
    *,
    leader: int = ME,
    epoch: int = 0,
    min_isr: int = 1,
) -> Assignment:
    """A state of a partition; by default this broker leads it alone."""
    return Assignment(leader, epoch, frozenset(isr), replicas or isr, min_isr)


def batch(
    count: int = 1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
) -> bytearray:
    records = [Record(offset, timestamp_ms, None, b"value") for offset in range(count)]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
