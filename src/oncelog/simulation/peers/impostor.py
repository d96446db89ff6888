"""Sends requests in the name of another client's transactional id, as no stock client does.

Each request has a wrong producer id or epoch, or repeats one that was answered before. The broker
refuses it, or repeats the answer; it changes nothing. What it may answer is Apache Kafka's
behaviour, except that Oncelog aborts no transaction for an InitProducerId with an epoch that is not
the current one (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from oncelog.client import requests
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PRODUCER_EPOCH_MAX
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import SendFailed, Sent, Value
from oncelog.simulation.peers.batches import Batch, Corners
from oncelog.simulation.peers.sending import PRODUCE_BY_NAME_MAX, PRODUCE_TV1_MAX
from oncelog.simulation.peers.transactional import Transactional
from oncelog.simulation.peers.wire import GROUP, TRANSACTION, Address, LostError

__all__ = ["Impostor"]

_GAP: Final = 10_000
"""How far a refused sequence is ahead: further than the producer gets in one epoch."""
_ADD_BY_CLIENT_MAX: Final = 3
_FOREIGN_COUNT: Final = 1_000_000
"""How far a producer id is ahead that no producer has: far more than a run gives out in blocks."""


class Impostor:
    """Misuses the id of `producer`, which does nothing meanwhile.

    `touched`: the partitions of the open transaction; empty means that none may be open.
    """

    def __init__(self, context: ClientContext, producer: Transactional, group: str) -> None:
        self._context = context.named(f"{context.name}-impostor")
        self._producer = producer
        self._group = group
        self._wire = producer.wire.another()
        self._count = 0
        self.touched: set[TopicPartition] = set()
        self.last_end: tuple[int, bool] | None = None
        """(epoch, commit) of the last transaction that ended."""
        self._acts: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._init, self._init, self._end, self._end, self._add_partitions),
            *(self._add_offsets, self._commit_offsets, self._produce, self._produce),
            *(self._repeat, self._repeat, self._leave_a_gap),
        )

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def ended(self, epoch: int, commit: bool) -> None:
        """Note the end of a transaction of the producer."""
        self.last_end = (epoch, commit)
        self.touched.clear()

    async def act(self) -> None:
        """Send one request and judge its answer, if there is one."""
        if self._context.chance(0.2):
            self._wire.close()
        try:
            await self._context.rng.choice(self._acts)()
        except (LostError, DisconnectedError):
            self._wire.forget_coordinator(TRANSACTION, self._producer.transactional_id)
            self._wire.forget_coordinator(GROUP, self._group)

    # --- wrong ids --------------------------------------------------------------------

    def _mine(self) -> tuple[int, int]:
        return self._producer.sender.producer_id, self._producer.sender.epoch

    def _wrong_ids(self) -> tuple[int, int]:
        """Draw a producer id and epoch that are not the current ones."""
        producer_id, epoch = self._mine()
        rng = self._context.rng
        wrong = [
            (producer_id, epoch + rng.choice((1, 2))),
            (producer_id + _FOREIGN_COUNT, epoch),
            *([(producer_id, epoch - 1)] * 3 if epoch >= 1 else ()),
            *([(producer_id, rng.randrange(epoch))] if epoch >= 1 else ()),
        ]
        chosen: tuple[int, int] = rng.choice(wrong)
        return chosen if chosen[1] <= PRODUCER_EPOCH_MAX else wrong[1]

    async def _ask(
        self, api: ApiKey, request: RequestFor[Any], at_most: int | None = None, kind: int = 1
    ) -> Any:
        """Send to the coordinator in a random version. Raises `LostError`."""
        key = self._producer.transactional_id if kind == TRANSACTION else self._group
        to = await self._wire.coordinator(kind, key)
        if to is None:
            raise LostError("the coordinator is not known")
        connection = await self._wire.open(to)
        newest = self._wire.version(connection, api, at_most)
        oldest = connection.support.versions[api][0]
        version = self._context.rng.randint(min(oldest, newest), newest)
        return await self._wire.ask(api, request, to=to, at_most=version)

    def _refused(self, what: str, code: ErrorCode, is_repeated: bool = False) -> None:
        """Record a request that took effect; `is_repeated`: it is the answer given before."""
        if code is ErrorCode.none and not is_repeated:
            self._context.stuck(f"{what} was accepted, the producer is {self._mine()}")

    def _is_open(self) -> bool:
        """Return whether the coordinator knows of an open transaction for certain."""
        return bool(self.touched) and self._producer.sender.is_idle

    def _is_known(self) -> bool:
        """Return whether the logs have the producer's state for certain, whatever has failed."""
        return self._is_open() and bool(self._context.get("strict", False))

    async def _init(self) -> None:
        producer_id, epoch = self._wrong_ids()
        tid = self._producer.transactional_id
        request = requests.init_producer_id_request(tid, 60_000, producer_id, epoch)
        # Before version 3 there are no expected ids, and the request starts a producer.
        to = await self._wire.coordinator(TRANSACTION, tid)
        if to is None:
            return
        answer = await self._wire.ask(ApiKey.INIT_PRODUCER_ID, request, to=to)
        told = (int(answer.producer_id), int(answer.producer_epoch))
        is_retry = not self._is_open() and (producer_id, epoch + 1) == self._mine() == told
        self._refused(f"InitProducerId of {producer_id}, {epoch}", answer.error_code, is_retry)

    async def _end(self) -> None:
        producer_id, epoch = self._wrong_ids()
        commit = self._context.chance(0.5)
        tid = self._producer.transactional_id
        request = requests.end_txn_request(tid, producer_id, epoch, commit)
        answer = await self._ask(ApiKey.END_TXN, request)
        is_retry = not self._is_open() and (epoch, commit) == self.last_end
        self._refused(f"EndTxn of {producer_id}, {epoch}", answer.error_code, is_retry)

    async def _add_partitions(self) -> None:
        producer_id, epoch = self._wrong_ids()
        known = self._producer.wire.partitions(self._context.get("topics", ()))
        if not known:
            return
        request = requests.add_partitions_request(
            self._producer.transactional_id, producer_id, epoch, known
        )
        answer = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, _ADD_BY_CLIENT_MAX)
        failed = requests.add_partitions_errors(answer)
        code = ErrorCode.none if len(failed) < len(known) else failed[0][1]
        self._refused(f"AddPartitionsToTxn of {producer_id}, {epoch}", code)

    async def _add_offsets(self) -> None:
        producer_id, epoch = self._wrong_ids()
        request = requests.add_offsets_request(
            self._producer.transactional_id, producer_id, epoch, self._group
        )
        answer = await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
        self._refused(f"AddOffsetsToTxn of {producer_id}, {epoch}", answer.error_code)

    async def _commit_offsets(self) -> None:
        """With wrong ids, sometimes as a member that the group does not have."""
        ids = self._wrong_ids()
        known = self._producer.wire.partitions(self._context.get("topics", ()))
        if not known:
            return
        topic_ids = {known[0].topic: self._producer.wire.topic_id(known[0].topic)}
        request = requests.txn_offset_commit_request(
            self._producer.transactional_id,
            *ids,
            self._group,
            {known[0]: OffsetAndMetadata(999_999)},
            topic_ids,
        )
        if self._context.chance(0.3):
            generation = self._context.rng.randint(0, 5)
            request = replace(
                request, member_id="unknown", generation_id_or_member_epoch=generation
            )
        at_most = requests.txn_offsets_version_max(topic_ids.values(), is_tv1=False)
        answer = await self._ask(ApiKey.TXN_OFFSET_COMMIT, request, at_most, GROUP)
        failed = requests.partition_errors(answer, topic_ids)
        code = failed[0][1] if failed else ErrorCode.none
        self._refused(f"TxnOffsetCommit of {ids}", code)

    # --- records ----------------------------------------------------------------------

    def _batch(self, at: TopicPartition, producer_id: int, epoch: int, sequence: int) -> Batch:
        """Return a batch of one record, which must never be in the log."""
        value = Value(self._context.name, self._count, -1, "")
        self._count += 1
        records = Corners().records(self._context.rng, self._context.clock.now_ms(), [value])
        batch = Batch(at, [value], records, codec="none", deadline_s=0.0)
        batch.producer_id, batch.epoch, batch.sequence = producer_id, epoch, sequence
        return batch

    async def _produce(self) -> None:
        """Produce with wrong ids."""
        producer_id, epoch = self._wrong_ids()
        known = self._producer.wire.partitions(self._context.get("topics", ()))
        if not known:
            return
        at = self._context.rng.choice(known)
        sequence = self._context.rng.choice((0, self._producer.sender.next_sequence(at), 5))
        batch = self._batch(at, producer_id, epoch, sequence)
        await self._send(batch, f"Produce of {producer_id}, {epoch}")

    async def _leave_a_gap(self) -> None:
        """Produce as the producer, with a sequence that is far ahead.

        A log without the producer's state takes any first sequence from a client of TV1, as Apache
        Kafka's `ProducerAppendInfo.checkSequence` does. It has none before the producer's first
        batch, which this request may overtake, nor after a loss of that batch. So one is sent as
        TV1 only after an acknowledgement that nothing can take back. Under TV2 the log refuses it
        in any state (KAFKA-18202).
        """
        is_known = self._is_known()
        if not self.touched or not (is_known or self._producer.is_v2):
            return
        at = self._context.rng.choice(sorted(self.touched))
        sequence = self._producer.sender.next_sequence(at)
        if not sequence:
            return
        batch = self._batch(at, *self._mine(), sequence + _GAP)
        what = f"Produce of sequence {sequence + _GAP} after {sequence - 1}"
        await self._send(batch, what, may_be_tv1=is_known)

    async def _send(self, batch: Batch, what: str, *, may_be_tv1: bool = True) -> None:
        leader = self._producer.wire.leader(batch.at)
        if leader is None:
            return
        for value in batch.values:
            self._context.record(Sent, value, batch.at)
        is_tv1 = may_be_tv1 and self._context.chance(0.5)
        version = PRODUCE_TV1_MAX if is_tv1 else PRODUCE_BY_NAME_MAX
        payload = [(batch.at.partition, batch.encode(transactional=True))]
        code, _ = await self._write(leader, version, [(batch.at.topic, None, payload)])
        self._refused(what, code)
        if code is not ErrorCode.none and not code.retriable:
            for value in batch.values:
                self._context.record(SendFailed, value, code.name, True)

    async def _repeat(self) -> None:
        """Send a request of the producer again: its batches are duplicates, whenever it comes.

        It may also overtake them: as TV1, and with later sequences, it is sent only where a log has
        the producer's state for certain (see `_leave_a_gap`).
        """
        is_known = self._is_known()
        kept = [
            (version, topics)
            for version, topics, is_first in self._producer.sender.kept_requests
            if is_known or is_first or version > PRODUCE_TV1_MAX
        ]
        if not kept:
            return
        version, topics = self._context.rng.choice(kept)
        for name, _, _ in topics:
            leader = self._producer.wire.leader(TopicPartition(str(name), 0))
            if leader is not None:
                # What is written twice, other checkers find.
                await self._write(leader, version, topics)
                return

    async def _write(
        self, leader: Address, version: int, topics: list[Any]
    ) -> tuple[ErrorCode, int]:
        """Send one Produce; return the first partition's error and offset. Raises `LostError`."""
        connection = await self._wire.open(leader)
        buffers = encode_produce_request(
            version,
            connection.next_correlation_id(),
            self._context.name,
            transactional_id=self._producer.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topics=topics,
        )
        future = connection.submit(ApiKey.PRODUCE, version, buffers)
        body = await self._wire.wait(connection, future, self._wire.timeout_ms)
        answer = parse_produce_response(body, version, 0)
        partition = answer.topics[0].partitions[0]
        return ErrorCode(partition.error), partition.base_offset
