"""Simulates the producer's accumulator alone, against partitions that check sequences.

Answers come late, are lost before or after the append, or are errors; leaders move, time passes and
transactions fail. After each step all that the machine tells is compared with what a list of all
batches implies, and in the end each record that was acknowledged is in its partition's log once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from oncelog.client.errors import (
    AbortableError,
    ClientError,
    DeliveryTimeoutError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.client.machines.producer import (
    BatchEnd,
    ProducerMachine,
    ProducerSettings,
    size_of,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import SEQUENCE_MODULUS
from oncelog.protocol.batch import read_header
from oncelog.protocol.record import Record, build_batch, iter_records
from oncelog.simulation.components.producer_model import AccountedBatch, LedPartition

__all__ = ["producers"]

LIVES_COUNT: Final = 3
STEPS_COUNT: Final = 90
NODES_COUNT: Final = 2
IN_FLIGHT_MAX: Final = 5
_REFUSALS: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas,
    ErrorCode.message_too_large,
    ErrorCode.invalid_record,
    ErrorCode.producer_fenced,
    ErrorCode.topic_authorization_failed,
)


def producers(rng: random.Random, make: type[ProducerMachine] = ProducerMachine) -> Iterator[str]:
    """Simulate some producers; yield what is wrong with the first that is."""
    for life in range(LIVES_COUNT):
        for text in _ProducerLife(rng, make).live():
            yield f"life {life} of a producer: {text}"
            return


class _ProducerLife:
    """One producer, and the brokers that it sends to."""

    def __init__(self, rng: random.Random, make: type[ProducerMachine]) -> None:
        self._rng = rng
        self._is_idempotent = rng.random() < 0.8
        self._settings = ProducerSettings(
            idempotent=self._is_idempotent,
            transactional=self._is_idempotent and rng.random() < 0.5,
            retry_delay_ms=lambda attempts: 10.0 * (attempts + 1),
            batch_size=rng.choice((60, 150, 100_000)),
            linger_ms=rng.choice((0.0, 5.0)),
            delivery_timeout_ms=rng.choice((200.0, 100_000.0)),
            request_size_max=rng.choice((90, 100_000)),
            retries=rng.choice((2, 1_000)),
        )
        self._real = make(self._settings)
        self._now_ms = 1_000.0
        self._count = 0
        self._epoch = -1
        self._is_broken = False
        self._failure: ClientError | None = None
        self._batches: list[AccountedBatch] = []
        self._partitions = {
            TopicPartition(topic, index): LedPartition(rng.randrange(NODES_COUNT))
            for topic, index in (("a", 0), ("a", 1), ("b", 0))[: rng.choice((1, 2, 3))]
        }
        self._is_calm = rng.random() < 0.3

    # --- what the calls imply

    def _queued(self, at: TopicPartition) -> list[AccountedBatch]:
        return [each for each in self._batches if each.at == at and each.state == "queued"]

    def _flying(self, at: TopicPartition) -> list[AccountedBatch]:
        return [each for each in self._batches if each.at == at and each.state == "flying"]

    def _unresolved(self) -> list[AccountedBatch]:
        return [each for each in self._batches if each.state != "over"]

    def _ready_at_ms(self, batch: AccountedBatch) -> float:
        if batch.attempts:
            return batch.retry_at_ms
        is_waiting = not batch.is_closed and batch is self._queued(batch.at)[-1]
        alone = len(self._queued(batch.at)) == 1
        return batch.created_ms + (self._settings.linger_ms if is_waiting and alone else 0.0)

    def _may_send(self, at: TopicPartition) -> AccountedBatch | None:
        """The batch that the partition would send now, if its leader is known."""
        partition, queued, flying = self._partitions[at], self._queued(at), self._flying(at)
        most = IN_FLIGHT_MAX if self._is_idempotent and partition.is_known else 1
        if not queued or partition.waits or len(flying) >= most:
            return None
        first = queued[0]
        is_nameless = self._epoch < 0 or self._is_broken
        if self._is_idempotent and is_nameless and first.sequence < 0:
            return None
        return first if self._ready_at_ms(first) <= self._now_ms else None

    def _compare(self, where: str) -> Iterator[str]:
        real, unresolved = self._real, self._unresolved()
        deadlines: list[float] = []
        for at in self._partitions:
            if queued := self._queued(at):
                deadlines.append(queued[0].created_ms + self._settings.delivery_timeout_ms)
                due_ms = self._ready_at_ms(queued[0])
                deadlines += [due_ms] if due_ms > self._now_ms else []
        is_sequenced = any(each.sequence >= 0 for each in unresolved)
        is_nameless = self._epoch < 0 or self._is_broken
        serial = self._rng.randint(0, len(self._batches))
        implied = {
            "buffered": sum(each.size for each in unresolved),
            "flying": sum(each.state == "flying" for each in unresolved),
            "idle": not unresolved,
            "broken": self._is_broken,
            "sequenced": is_sequenced,
            "needs identity": self._is_idempotent and is_nameless and not is_sequenced,
            "last serial": len(self._batches),
            f"resolved up to {serial}": all(b.state == "over" for b in self._batches[:serial]),
            "next deadline": min(deadlines, default=None),
            "waiting": sorted(at for at in self._partitions if self._may_send(at)),
            "open": [at for at in self._partitions if self._is_open(at)],
        }
        found = {
            "buffered": real.buffered_size,
            "flying": real.in_flight_count,
            "idle": real.is_idle,
            "broken": real.sequences_broken,
            "sequenced": real.has_sequenced,
            "needs identity": real.needs_identity,
            "last serial": real.last_serial,
            f"resolved up to {serial}": real.is_resolved_up_to(serial),
            "next deadline": real.next_deadline_ms(self._now_ms),
            "waiting": sorted(real.waiting_partitions(self._now_ms)),
            "open": [at for at in self._partitions if real.has_open_batch(at)],
        }
        for name, value in implied.items():
            if found[name] != value:
                yield f"{where}: {name} is {found[name]}, not {value}"

    def _is_open(self, at: TopicPartition) -> bool:
        queued = self._queued(at)
        return bool(queued) and not queued[-1].is_closed

    # --- its life

    def live(self) -> Iterator[str]:
        """Take steps; yield the first difference."""
        steps = [self._append] * 8 + [self._drain] * 8 + [self._answer] * 10
        steps += [self._pass_time] * 4 + [self._append_batch] * 2 + [self._seal, self._lose]
        steps += [self._identify] * 2 + [self._burst] * 3
        if not self._is_calm:
            steps += [self._move] * 4 + [self._fail, self._reject]
        for number in range(STEPS_COUNT):
            step = self._rng.choice(steps)
            where = f"step {number}, {step.__name__}"
            for text in step():
                yield f"{where}: {text}"
                return
            for text in self._compare(where):
                yield text
                return
        yield from self._end()

    def _end(self) -> Iterator[str]:
        """All that is unresolved fails, and the logs hold what was acknowledged."""
        error = AbortableError(ErrorCode.transaction_abortable, "the end")
        unresolved = self._unresolved()
        yield from self._over(self._real.end(error), unresolved, error)
        yield from self._compare("after the end")

    def _append(self) -> Iterator[str]:
        at = self._rng.choice(list(self._partitions))
        self._count += 1
        value = f"{self._count}:".encode() + bytes(self._rng.choice((1, 30, 90)))
        key = self._rng.choice((None, b"key"))
        headers = self._rng.choice(((), (("name", b"value"), ("other", None))))
        record = Record(0, 7, key, value, headers)
        size = 24 + len(key or b"") + len(value) + (4 * 2 + 4 + 5 + 5 if headers else 0)
        if size_of(record) != size:
            yield f"a record counts as {size_of(record)} bytes, not {size}"
        queued = self._queued(at)
        last = queued[-1] if queued else None
        real = self._real.append(at, record, self._count, self._now_ms)
        if last is not None and not last.is_closed:
            if last.size + size <= self._settings.batch_size:
                last.values.append(value)
                last.tokens.append(self._count)
                last.size += size
                last.is_closed = last.size >= self._settings.batch_size
                if real is not last.real:
                    yield "a record did not join the open batch"
                return
            last.is_closed = True
        is_closed = size >= self._settings.batch_size
        self._batches.append(
            AccountedBatch(at, self._now_ms, [value], [self._count], size, False, is_closed, real)
        )

    def _append_batch(self) -> Iterator[str]:
        at = self._rng.choice(list(self._partitions))
        self._count += 1
        values = [f"{self._count}.{n}".encode() for n in range(self._rng.choice((1, 3)))]
        payload = build_batch([Record(n, 7, None, value) for n, value in enumerate(values)])
        for before in self._queued(at)[-1:]:
            before.is_closed = True
        real = self._real.append_batch(at, payload, len(values), self._count, self._now_ms)
        size = len(payload)
        tokens: list[object] = [self._count]
        self._batches.append(
            AccountedBatch(at, self._now_ms, values, tokens, size, True, True, real)
        )
        yield from ()

    def _burst(self) -> Iterator[str]:
        """Several batches in flight at once, as a partition with a load has."""
        for _ in range(4):
            yield from self._append_batch()
            yield from self._drain()

    def _seal(self) -> Iterator[str]:
        self._real.seal()
        for at in self._partitions:
            for last in self._queued(at)[-1:]:
                last.is_closed = True
        yield from ()

    def _pass_time(self) -> Iterator[str]:
        self._now_ms += self._rng.choice((1.0, 5.0, 10.0, 30.0, 150.0))
        late: list[AccountedBatch] = []
        for at in self._partitions:
            for batch in self._queued(at):
                if batch.created_ms + self._settings.delivery_timeout_ms > self._now_ms:
                    break
                late.append(batch)
        yield from self._over(self._real.expire(self._now_ms), late, None)

    def _identify(self) -> Iterator[str]:
        if not self._is_idempotent or any(each.sequence >= 0 for each in self._unresolved()):
            return
        if self._epoch >= 0 and not self._is_broken and self._rng.random() < 0.7:
            return
        self._epoch += 1
        self._is_broken, self._failure = False, None
        self._real.identify(9, self._epoch)
        for partition in self._partitions.values():
            partition.next_sequence = 0
            partition.waits = partition.is_known = False
        at = self._rng.choice([each.at for each in self._batches] or [None])
        if at is not None and not self._queued(at) and not self._flying(at):
            start = SEQUENCE_MODULUS - 2
            self._real.continue_at(at, start)
            self._partitions[at].next_sequence = start
        yield from ()

    def _move(self) -> Iterator[str]:
        partition = self._rng.choice(list(self._partitions.values()))
        partition.leader = self._rng.choice((None, *range(NODES_COUNT)))
        yield from ()

    def _drain(self) -> Iterator[str]:
        wanted: dict[int, list[AccountedBatch]] = {}
        # A partition that was used sooner comes first.
        for at in dict.fromkeys(each.at for each in self._batches):
            partition = self._partitions[at]
            batch, leader = self._may_send(at), partition.leader
            if batch is None or leader is None:
                continue
            if self._flying(at) and partition.sent_to != leader:
                continue
            used = sum(each.size for each in wanted.get(leader, ()))
            if used and used + batch.size > self._settings.request_size_max:
                continue
            wanted.setdefault(leader, []).append(batch)
        sends = self._real.drain(self._now_ms, lambda at: self._partitions[at].leader)
        found = {send.node_id: list(send.batches) for send in sends}
        implied = {node: [each.real for each in batches] for node, batches in wanted.items()}
        if found != implied:
            yield f"it sends {found}, not {implied}"
            return
        for node, batches in wanted.items():
            for batch in batches:
                yield from self._sent(batch, node)

    def _sent(self, batch: AccountedBatch, node: int) -> Iterator[str]:
        partition = self._partitions[batch.at]
        batch.state, batch.is_closed, partition.sent_to = "flying", True, node
        if self._is_idempotent and batch.sequence < 0:
            batch.sequence = partition.next_sequence
            following = batch.sequence + len(batch.values)
            partition.next_sequence = following % SEQUENCE_MODULUS
        payload = batch.real.payload
        if payload is None:
            yield "a batch without bytes is sent"
            return
        header = read_header(payload)
        values = [record.value for record in iter_records(payload, 0, header)]
        identity = (9, self._epoch) if self._epoch >= 0 else (-1, -1)
        found = (header.producer_id, header.producer_epoch, header.base_sequence, values)
        if found != (*identity, batch.sequence, batch.values):
            yield f"the bytes are {found}, not {(*identity, batch.sequence, batch.values)}"
        if header.is_transactional != self._settings.transactional:
            yield "the bytes are of another kind of transaction"

    # --- answers

    def _answer(self) -> Iterator[str]:
        flying = [each for each in self._batches if each.state == "flying"]
        if not flying:
            return
        # A connection answers in order; connections to different leaders do not.
        batch = self._rng.choice(flying)
        batch = self._flying(batch.at)[0]
        chance = self._rng.random() if not self._is_calm else 1.0
        if chance < 0.2:
            self._take(batch)
            code = ErrorCode.network_exception
        elif chance < 0.26:
            code = ErrorCode.network_exception
        elif chance < 0.36:
            code = self._rng.choice(_REFUSALS)
        else:
            code = self._take(batch)
        offset = self._partitions[batch.at].offset_of(batch) if code is ErrorCode.none else -1
        at_ms = self._rng.choice((-1, 5))
        ends = self._real.answered(
            batch.real, code, self._now_ms, base_offset=offset, log_append_time_ms=at_ms
        )
        yield from self._judge(batch, code, ends, (offset, at_ms))

    def _take(self, batch: AccountedBatch) -> ErrorCode:
        return self._partitions[batch.at].take(batch, self._epoch)

    def _judge(
        self, batch: AccountedBatch, code: ErrorCode, ends: list[BatchEnd], said: tuple[int, int]
    ) -> Iterator[str]:
        partition = self._partitions[batch.at]
        others = [each for each in self._flying(batch.at) if each is not batch]
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            partition.is_known = True
            partition.waits = partition.waits and bool(others)
            found = [(end.base_offset, end.log_append_time_ms) for end in ends]
            yield from self._over(ends, [batch], None, is_good=True)
            if found != [said]:
                yield f"a batch ends at {found}, the leader said {said}"
            first = self._partitions[batch.at].offset_of(batch) if self._is_idempotent else said[0]
            if partition.log[first : first + len(batch.values)] != batch.values:
                yield f"the log holds other records than those that were acknowledged at {first}"
            return
        partition.waits, partition.is_known = bool(others), False
        queued = self._queued(batch.at)
        index = self._batches.index
        is_behind = any(index(each) < index(batch) for each in (*queued, *others))
        operation = (
            Operation.TRANSACTIONAL_PRODUCE if self._settings.transactional else Operation.PRODUCE
        )
        error = classify(code, operation)
        is_retried = isinstance(error, RetriableError) and batch.attempts < self._settings.retries
        if code is ErrorCode.out_of_order_sequence_number:
            is_retried = is_behind
        if self._failure is None and is_retried:
            batch.state, batch.last = "queued", code
            batch.attempts += 1
            batch.retry_at_ms = self._now_ms + 10.0 * batch.attempts
            if ends:
                yield f"{code.name} ends a batch that is to be sent again"
            return
        is_replaced = self._failure is not None and isinstance(error, RetriableError)
        yield from self._over(ends, [batch], self._failure if is_replaced else error)

    def _lose(self) -> Iterator[str]:
        """A connection ends with all that was sent on it."""
        node = self._rng.randrange(NODES_COUNT)
        lost = [
            each
            for at, partition in self._partitions.items()
            if partition.sent_to == node
            for each in self._flying(at)
        ]
        for batch in lost:
            if self._rng.random() < 0.4:
                self._take(batch)
        ends = self._real.connection_lost([each.real for each in lost], self._now_ms)
        for batch in lost:
            mine = [end for end in ends if end.batch is batch.real]
            yield from self._judge(batch, ErrorCode.network_exception, mine, (-1, -1))

    # --- failures

    def _fail(self) -> Iterator[str]:
        """The transaction fails; it goes on once all has been answered."""
        if self._failure is None:
            self._failure = AbortableError(ErrorCode.transaction_abortable, "it fails")
            queued = [each for each in self._batches if each.state == "queued"]
            yield from self._over(self._real.abandon(self._failure), queued, self._failure)
        elif not self._unresolved():
            self._real.resume()
            self._failure = None

    def _reject(self) -> Iterator[str]:
        error = classify(ErrorCode.topic_authorization_failed, Operation.OTHER)
        queued = [each for at in self._partitions if at.topic == "b" for each in self._queued(at)]
        yield from self._over(self._real.reject("b", error), queued, error)

    def _over(
        self,
        ends: list[BatchEnd],
        batches: list[AccountedBatch],
        error: ClientError | None,
        *,
        is_good: bool = False,
    ) -> Iterator[str]:
        """These batches end, and no other; with that error, or late, or well."""
        found, implied = [end.batch for end in ends], [each.real for each in batches]
        if sorted(map(id, found)) != sorted(map(id, implied)):
            yield f"batches {[each.serial for each in found]} end, not {implied}"
            return
        for end in ends:
            if is_good:
                is_right = end.error is None
            elif error is None:
                is_right = isinstance(end.error, DeliveryTimeoutError)
            else:
                is_right = repr(end.error) == repr(error)
            if not is_right:
                yield f"batch {end.batch.serial} ends with {end.error!r}, not {error!r}"
        for batch in batches:
            if batch.real.tokens != batch.tokens:
                yield f"a batch has the tokens {batch.real.tokens}, not {batch.tokens}"
            batch.state = "over"
            if not is_good and batch.sequence >= 0:
                self._is_broken = True
