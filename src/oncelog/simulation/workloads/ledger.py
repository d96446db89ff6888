"""What one client sent to a topic that no other client writes to, and what must follow from it.

It judges each Produce request, each acknowledgement, and each record that is read back. `complain`
takes what is wrong.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from oncelog.client import ClientError, DeliveryTimeoutError, RecordMetadata, TopicPartition
from oncelog.client.values import ConsumerRecord
from oncelog.protocol.batch import read_header
from oncelog.protocol.produce import ProduceRequest
from oncelog.protocol.record import iter_records
from oncelog.simulation.history import Value

__all__ = ["Entry", "Ledger", "Settings"]

IN_FLIGHT_MAX = 5
RECORD_OVERHEAD_SIZE = 24
"""Bytes that count for a record beside its key, value and headers."""
PROMPT_MS = 60.0
"""A batch that nothing holds back is sent so soon."""
LATE_MS = 2_500.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Those of one producer."""

    linger_ms: float
    batch_size: int
    delivery_timeout_ms: float
    request_timeout_ms: float
    is_transactional: bool


@dataclass(slots=True, eq=False)
class Entry:
    """One record: when it was sent by whom, and what became of it."""

    place: TopicPartition
    value: bytes
    time_ms: int
    size: int
    headers: tuple[tuple[str, bytes], ...]
    created_ms: float
    settings: Settings
    number: int
    """Among all of its partition."""
    flush_number: int
    transaction: int
    first_sent_ms: float = -1.0
    identity: tuple[int, int, int] = (-1, -1, -1)
    """Producer id, epoch and sequence of its batch."""
    offset: int = -1
    delivery: asyncio.Future[RecordMetadata] | None = None
    is_told: bool = False
    """Whether its outcome was told; futures tell theirs in a later turn of the loop."""
    failed: ClientError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it has an outcome."""
        return self.delivery is not None and self.delivery.done()


class Ledger:
    """See the module. `now_ms` is the client's monotonic time."""

    def __init__(
        self, owner: str, now_ms: Callable[[], float], complain: Callable[[str], None]
    ) -> None:
        self._owner = owner
        self._now_ms = now_ms
        self._complain = complain
        self._by_value: dict[bytes, Entry] = {}
        self._next_sequence: dict[tuple[TopicPartition, int, int], int] = {}
        self._sent: dict[tuple[TopicPartition, int, int, int], tuple[bytes, ...]] = {}
        self._in_flight: defaultdict[TopicPartition, list[Entry]] = defaultdict(list)
        """The first record of each batch that was sent and may have no outcome yet."""
        self._answered_ms: dict[TopicPartition, float] = {}
        self.by_place: defaultdict[TopicPartition, list[Entry]] = defaultdict(list)
        self.committed: set[int] = set()
        """The transactions that are known to have committed."""
        self.frozen_ms = 0.0
        self.flush_number = 0
        self.is_calm = False
        """Whether nothing goes wrong, so that times can be judged."""

    # --- sending ----------------------------------------------------------------------

    def add(self, entry: Entry, delivery: asyncio.Future[RecordMetadata]) -> None:
        """Note a record that was handed to the producer."""
        entry.delivery = delivery
        self._by_value[entry.value] = entry
        self.by_place[entry.place].append(entry)
        delivery.add_done_callback(partial(self._settled, entry))

    def produced(self, request: ProduceRequest) -> None:
        """Judge one request of the producer."""
        for topic in request.topics:
            for partition in topic.partitions:
                self._batch(partition.index, bytes(partition.records or b""))

    def _batch(self, index: int, data: bytes) -> None:
        header = read_header(data)
        records = list(iter_records(data, 0, header))
        entries = [self._by_value.get(bytes(record.value or b"")) for record in records]
        known = [entry for entry in entries if entry is not None]
        if len(known) != len(entries) or not known:
            self._complain(f"a batch for partition {index} holds records that were not sent")
            return
        first, place = known[0], known[0].place
        if header.length != len(data) or any(entry.place.partition != index for entry in known):
            self._complain(f"a batch for partition {index} holds {known}")
        times = [record.timestamp for record in records]
        if times != [entry.time_ms for entry in known] or header.max_timestamp != max(times):
            self._complain(f"a batch says {times} are the times of {known}")
        if bool(header.attributes & 0x10) != first.settings.is_transactional:
            self._complain(f"a batch of {first} has the attributes {header.attributes}")
        numbers = [entry.number for entry in known]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            self._complain(f"a batch holds the records {numbers} of {place}")
        size = sum(entry.size for entry in known)
        if len(known) > 1 and size > first.settings.batch_size:
            self._complain(f"a batch of {len(known)} records has {size} bytes: {first}")
        self._number(place, header.producer_id, header.producer_epoch, header.base_sequence, known)

    def _number(
        self, place: TopicPartition, producer_id: int, epoch: int, base: int, known: list[Entry]
    ) -> None:
        """A batch has the next sequence; sent again, it is the same."""
        values = tuple(entry.value for entry in known)
        key = (place, producer_id, epoch, base)
        before = self._sent.setdefault(key, values)
        if before != values:
            self._complain(f"{key} was sent with {len(before)} and {len(values)} other records")
        identity = producer_id, epoch, base
        if known[0].first_sent_ms >= 0:
            if known[0].identity != identity:
                self._complain(f"{known[0]} is sent again as {identity}")
            if known[0].is_settled:
                self._complain(f"{known[0]} is sent after its end")
            return
        due = self._next_sequence.get(key[:3], 0)
        if base != due or min(producer_id, epoch) < 0:
            self._complain(f"a batch of {place} is sent as {identity}, due is {due}")
        self._next_sequence[key[:3]] = base + len(known)
        now_ms = self._now_ms()
        self._judge_time(known, now_ms)
        for entry in known:
            entry.first_sent_ms, entry.identity = now_ms, identity
        in_flight = [entry for entry in self._in_flight[place] if not entry.is_settled]
        self._in_flight[place] = [*in_flight, known[0]]
        if len(in_flight) >= IN_FLIGHT_MAX:
            self._complain(f"{len(in_flight)} batches are in flight before {known[0]}")

    def _judge_time(self, known: list[Entry], now_ms: float) -> None:
        """A batch lingers as long as it may, unless it is full or flushed, and no longer."""
        first, settings = known[0], known[0].settings
        after = self.by_place[first.place][known[-1].number + 1 :]
        following = after[0].size if after else 0
        is_full = sum(entry.size for entry in known) + following >= settings.batch_size
        waited_ms = now_ms - first.created_ms
        is_flushed = first.flush_number != self.flush_number
        is_due = waited_ms >= 0.999 * settings.linger_ms - 1 or is_full or is_flushed
        if not is_due:
            self._complain(f"a batch is sent after {waited_ms:.1f} ms: {first}")
        in_flight = [entry for entry in self._in_flight[first.place] if not entry.is_settled]
        if self.is_calm and not in_flight and waited_ms > settings.linger_ms + PROMPT_MS:
            late_since = [e for e in self.by_place[first.place][: first.number] if e.is_settled]
            if late_since and self._answered_ms.get(first.place, 0) < now_ms - PROMPT_MS:
                self._complain(f"a batch waited for {waited_ms:.0f} ms: {first}")

    # --- outcomes ---------------------------------------------------------------------

    def _settled(self, entry: Entry, delivery: asyncio.Future[RecordMetadata]) -> None:
        entry.is_told = True
        now_ms = self._now_ms()
        self._answered_ms[entry.place] = now_ms
        settings = entry.settings
        lasted_ms = now_ms - entry.created_ms - self.frozen_ms
        if lasted_ms > settings.delivery_timeout_ms + settings.request_timeout_ms + LATE_MS:
            self._complain(f"{entry} was settled after {lasted_ms:.0f} ms")
        error = delivery.exception()
        if isinstance(error, ClientError):
            entry.failed = error
            is_timeout = isinstance(error, DeliveryTimeoutError)
            waited_ms = now_ms - entry.created_ms
            # As in Java's producer the time is that of the batch, begun up to linger_ms before.
            is_early = waited_ms < 0.999 * settings.delivery_timeout_ms - settings.linger_ms
            # Another record of its transaction may have run out of time.
            if is_timeout and is_early and not settings.is_transactional:
                self._complain(f"{entry} timed out after {waited_ms:.0f} ms")
            return
        if error is None:
            self._acknowledged(entry, delivery.result())

    def _acknowledged(self, entry: Entry, told: RecordMetadata) -> None:
        place = TopicPartition(told.topic, told.partition)
        if place != entry.place or told.timestamp_ms != entry.time_ms:
            self._complain(f"{entry} was acknowledged as {told}")
        # The offset of a batch that was found to be written already may be unknown.
        entry.offset = told.offset
        before = [e for e in self.by_place[entry.place][: entry.number] if e.offset >= 0]
        if before and 0 <= told.offset <= before[-1].offset:
            self._complain(f"{entry} was acknowledged behind {before[-1]}")
        earlier = [e for e in self.by_place[entry.place][: entry.number] if not e.is_told]
        if earlier:
            self._complain(f"{entry} was acknowledged before {earlier[0]}")

    # --- reading back -----------------------------------------------------------------

    def read(self, record: ConsumerRecord, position: int, committed: bool) -> None:
        """Judge a record that was read at a position: nothing before it was left out."""
        place = TopicPartition(record.topic, record.partition)
        if record.offset < position:
            self._complain(f"{record} was read, the position was {position}")
        for entry in reversed(self.by_place[place]):
            if position <= entry.offset < record.offset and self._is_visible(entry, committed):
                self._complain(f"{entry} was left out between {position} and {record.offset}")
            if 0 <= entry.offset < position:
                break
        entry_read = self._by_value.get(record.value or b"")
        if entry_read is None:
            if not Value.decode(record.value or b"").client.startswith(self._owner):
                self._complain(f"{record} was read, and never sent")
            return
        told = (place, record.timestamp_ms, record.key, tuple(record.headers))
        wanted = (entry_read.place, entry_read.time_ms, None, entry_read.headers)
        if told != wanted or record.timestamp_type or record.leader_epoch < 0:
            self._complain(f"{record} was read, sent was {entry_read}")
        if entry_read.offset not in (-1, record.offset):
            self._complain(f"{record} was read, acknowledged was {entry_read}")

    def _is_visible(self, entry: Entry, committed: bool) -> bool:
        return not committed or entry.transaction < 0 or entry.transaction in self.committed

    def visible_from(self, place: TopicPartition, position: int, committed: bool) -> bool:
        """Whether a record that has to be read stands at or after a position."""
        return any(
            entry.offset >= position and self._is_visible(entry, committed)
            for entry in self.by_place[place]
        )

    @property
    def unsettled(self) -> list[Entry]:
        """The records without an outcome."""
        return [e for entries in self.by_place.values() for e in entries if not e.is_settled]
