"""With every message flushed, each step of a transaction is on the disk before the next begins.

A loss of power may keep what one file was not yet synced of, and lose the same of another. So the
order is what counts: PREPARE is synced before the first marker is written, all markers before
COMPLETE, and whatever a client was told before it is told (INV-1, INV-4, INV-6).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog import OffsetAndMetadata, Producer, TopicPartition
from oncelog.broker.broker import Broker
from oncelog.controller.topics import TopicToCreate
from oncelog.coordinator import CoordinatorRecord
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records, read_end_marker
from oncelog.runtime.disk import SystemDisk
from oncelog.transaction import records
from oncelog.transaction.states import TransactionState

ID = "txn"
MARKER = "marker"
OFFSET = "offset"
RECORD = "record"
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Ledger:
    """What was written and what of it is synced; notes each step that came too early."""

    def __init__(self) -> None:
        self.unsynced: list[tuple[str, str]] = []
        self.written: list[str] = []
        self.too_early: list[str] = []

    def write(self, path: str, data: bytes) -> None:
        for step in steps_in(path, data):
            for earlier in MUST_BE_SYNCED.get(step, ()):
                self.expect_synced(step, earlier)
            self.written.append(step)
            self.unsynced.append((path, step))

    def expect_synced(self, step: str, earlier: str) -> None:
        if any(one == earlier for _, one in self.unsynced):
            self.too_early.append(f"{step} before {earlier} was synced")

    def answered(self, step: str, *earlier: str) -> None:
        for one in earlier:
            self.expect_synced(f"the answer to {step}", one)


MUST_BE_SYNCED = {MARKER: ("PREPARE",), "COMPLETE": ("PREPARE", MARKER)}


def steps_in(path: str, data: bytes) -> list[str]:
    topic = Path(path).parent.name.rpartition("-")[0]
    if not path.endswith(".log") or topic not in ("t", *INTERNAL):
        return []
    found = []
    for position, header in iter_headers(data):
        for record in iter_records(data, position, header):
            if header.is_control:
                found.append(MARKER if read_end_marker(record) else "?")
            elif topic == TRANSACTION_STATE_TOPIC:
                _, metadata = records.decode(CoordinatorRecord(record.key or b"", record.value))
                assert metadata is not None
                found.append(step_of(metadata.state))
            else:
                found.append(OFFSET if topic == CONSUMER_OFFSETS_TOPIC else RECORD)
    return found


INTERNAL = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)


def step_of(state: TransactionState) -> str:
    if state in PREPARED:
        return "PREPARE"
    return "COMPLETE" if state in COMPLETE else state.name


class TracedFile:
    """A file that tells the ledger of writes, and of syncs when they are over."""

    def __init__(self, inner: Any, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger

    def pwrite(self, data: bytes, position: int) -> None:
        self._ledger.write(self._inner.path, bytes(data))
        self._inner.pwrite(data, position)

    def fsync(self) -> None:
        path = self._inner.path
        begun = [one for one in self._ledger.unsynced if one[0] == path]
        self._inner.fsync()
        # Only what stood in the file before the sync began is known to be safe.
        for one in begun:
            self._ledger.unsynced.remove(one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TracingDisk(SystemDisk):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def open(self, path: str, *, create: bool = False) -> Any:
        return TracedFile(super().open(path, create=create), self.ledger)


@asynccontextmanager
async def broker_on(folder: Path, ledger: Ledger, flushes: bool) -> AsyncIterator[Broker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    if flushes:
        settings["log.flush.interval.messages"] = "1"
    broker = Broker(BrokerConfig(settings), disk=TracingDisk(ledger))
    await broker.start()
    try:
        await broker.controller.create_topics([TopicToCreate("t")])
        yield broker
    finally:
        await broker.stop()


async def transact(producer: Producer, ledger: Ledger, commit: bool) -> None:
    """One transaction with a record and an offset, checked at each answer."""
    await producer.begin_transaction()
    await producer.send("t", b"value")
    ledger.answered("Produce", "ONGOING", RECORD)
    source = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    await producer.send_offsets_to_transaction(source, "group")
    ledger.answered("TxnOffsetCommit", "ONGOING", OFFSET)
    if commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()
    ledger.answered("EndTxn", "PREPARE", RECORD, OFFSET)


@pytest.mark.parametrize("flushes", [True, False])
async def test_each_step_is_synced_before_the_next_when_every_message_is_flushed(
    tmp_path: Path, flushes: bool
) -> None:
    """And the test would see it if not, as without the switch."""
    ledger = Ledger()
    async with broker_on(tmp_path, ledger, flushes) as broker:
        async with Producer(broker.bootstrap_servers, transactional_id=ID) as producer:
            await producer.init_transactions()
            ledger.answered("InitProducerId", "EMPTY")
            for commit in (True, False, True):
                await transact(producer, ledger, commit)
        async with asyncio.timeout(10):
            while ledger.written.count("COMPLETE") < 3:  # noqa: ASYNC110 - markers leave after the answer
                await asyncio.sleep(0.001)
    assert ledger.written.count(MARKER) == 6
    assert ledger.written.count(OFFSET) == 3
    told = {step.partition(" before ")[0] for step in ledger.too_early}
    everything = {MARKER, "COMPLETE"} | {
        f"the answer to {request}"
        for request in ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn")
    }
    assert told == (set() if flushes else everything)
