"""A made-up run for the tests of its page: clients, transactions, faults, and two anomalies."""

from __future__ import annotations

import random
from dataclasses import dataclass

from oncelog.core.ids import TopicPartition
from oncelog.simulation import history as h
from oncelog.simulation.final import FinalPartition, FinalState, LoggedBatch, LoggedRecord
from oncelog.simulation.history import Event, History, Value

INPUT = [TopicPartition("in", index) for index in range(3)]
OUTPUT = [TopicPartition("out", index) for index in range(2)]
OFFSETS = TopicPartition("__consumer_offsets", 0)


@dataclass(frozen=True)
class Found:
    kind: str
    detail: str
    at_s: float
    who: str
    topic_partition: TopicPartition | None
    offset: int
    values: tuple[Value, ...]
    allowed: str


class Sample:
    """Draws a run of about `size` events from a seed."""

    def __init__(self, seed: int = 7, size: int = 400) -> None:
        self.rng = random.Random(seed)
        self.size = size
        self.now_s = 0.0
        self.history = History()
        self.ends = dict.fromkeys((*INPUT, *OUTPUT), 0)
        self.logs: dict[TopicPartition, list[LoggedRecord]] = {p: [] for p in self.ends}
        self.hidden: set[tuple[TopicPartition, int]] = set()
        self.numbers: dict[str, int] = {}
        self.transactions: dict[str, int] = {}
        self.anomalies: list[Found] = []

    def note(self, event: Event) -> None:
        self.history.record(event)

    def pass_time(self, mean_s: float) -> None:
        self.now_s += self.rng.expovariate(1 / mean_s)

    def send(self, who: str, partition: TopicPartition, transaction: int) -> tuple[Value, int]:
        number = self.numbers[who] = self.numbers.get(who, -1) + 1
        value = Value(who, number, transaction)
        self.note(h.Sent(self.now_s, who, value, partition))
        self.pass_time(0.002)
        offset = self.ends[partition]
        self.ends[partition] += 1
        self.logs[partition].append(LoggedRecord(offset, value))
        self.note(h.Acked(self.now_s, who, value, partition, offset))
        return value, offset

    def transaction(self, who: str) -> None:
        number = self.transactions[who] = self.transactions.get(who, -1) + 1
        self.note(h.TransactionBegan(self.now_s, who, number, f"id-{who}"))
        sent = []
        for _ in range(self.rng.randint(1, 4)):
            partition = self.rng.choice(OUTPUT)
            sent.append((partition, *self.send(who, partition, number)))
        if self.rng.random() < 0.7:
            offsets = {self.rng.choice(INPUT): self.rng.randint(1, 50)}
            self.note(h.TransactionOffsets(self.now_s, who, number, "copiers", offsets))
        commit = self.rng.random() < 0.65
        self.note(h.TransactionEnding(self.now_s, who, number, commit))
        self.pass_time(0.01)
        if self.rng.random() < 0.08:
            self.note(h.TransactionUnknown(self.now_s, who, number, "REQUEST_TIMED_OUT"))
            return
        self.note(h.TransactionEnded(self.now_s, who, number, commit))
        if commit:
            return
        self.hidden |= {(partition, offset) for partition, _, offset in sent}
        is_new = all(found.kind != "aborted-read" for found in self.anomalies)
        if is_new and len(self.history) > self.size / 3:
            partition, value, offset = sent[0]
            self.now_s += 0.004
            self.poll("reader-1", partition, offset, (value,))
            detail = f"read_committed showed an aborted record: {value} at {partition}@{offset}"
            found = Found(
                "aborted-read", detail, self.now_s, "reader-1", partition, offset, (value,), ""
            )
            self.anomalies.append(found)

    def poll(
        self, who: str, partition: TopicPartition, offset: int, values: tuple[Value, ...]
    ) -> None:
        records = tuple((offset + index, value) for index, value in enumerate(values))
        end = offset + len(records)
        self.note(h.Polled(self.now_s, who, partition, True, records, end))

    def restart(self, life: int) -> None:
        self.note(h.Fault(self.now_s, "", "power-loss", "broker-0"))
        self.note(h.BrokerDied(self.now_s, "broker-0", life, "power"))
        self.now_s += 1.4
        self.note(h.BrokerStarted(self.now_s, "broker-0", life + 1))
        text = "recovered out-1: cut 61 bytes <torn> & rebuilt its index"
        self.note(h.Logged(self.now_s, "broker-0", "WARNING", text))
        first = self.logs[INPUT[0]][0]
        if life == 0 and first.value is not None:
            self.anomalies.append(
                Found(
                    "lost-write",
                    "an acknowledged record is not in the log: in-0@0",
                    self.now_s,
                    "",
                    INPUT[0],
                    0,
                    (first.value,),
                    "power was lost at 2.1 s and messages are not flushed",
                )
            )

    def rebalance(self, generation: int) -> None:
        for who in ("copier-1", "copier-2"):
            self.note(h.Revoked(self.now_s, who, "copiers", f"{who}-x", (INPUT[0],)))
            leads = who == "copier-1"
            joined = ("copiers", f"{who}-x", generation, "range", leads)
            self.note(h.Joined(self.now_s, who, *joined))
            self.pass_time(0.003)
            owned = (INPUT[0],) if leads else (INPUT[1], INPUT[2])
            self.note(h.Assigned(self.now_s, who, "copiers", f"{who}-x", generation, owned))

    def step(self, count: int) -> None:
        match self.rng.randrange(8):
            case 0 | 1:
                self.send("producer-1", self.rng.choice(INPUT), -1)
            case 2:
                self.send("producer-10", self.rng.choice(INPUT), -1)
            case 3 | 4:
                self.transaction(self.rng.choice(["copier-1", "copier-2", "producer-2"]))
            case 5 | 6:
                partition = self.rng.choice(INPUT)
                seen = [r.value for r in self.logs[partition][-3:] if r.value is not None]
                if seen:
                    first = self.ends[partition] - len(seen)
                    self.poll("reader-1", partition, first, tuple(seen))
            case _:
                until_s = self.now_s + self.rng.uniform(0.05, 0.6)
                kind, target = self.rng.choice(
                    [("delay", "copier-1 broker-0"), ("partition", "reader-1|broker-0")]
                )
                if count % 4 == 0:
                    self.note(h.Fault(self.now_s, "", kind, target, "20 ms", until_s))
        self.pass_time(2.0 if self.rng.random() < 0.02 else 0.01)

    def make(self) -> History:
        self.note(h.BrokerStarted(0.0, "broker-0", 0))
        self.note(h.TopicChanging(0.01, "admin", "in", "create"))
        self.note(h.TopicChanged(0.02, "admin", "in", "create", 3))
        self.now_s = 0.05
        self.send("producer-1", INPUT[0], -1)
        self.rebalance(1)
        count = 0
        while len(self.history) < self.size:
            count += 1
            self.step(count)
            if count % 70 == 0:
                self.rebalance(1 + count // 70)
            if count % 90 == 45:
                self.restart(count // 90)
        self.note(h.Progress(self.now_s, "reader-1", "settled"))
        return self.history

    def final(self) -> FinalState:
        return FinalState(
            {p: self._end(p) for p in self.logs}, unread={OFFSETS: "its leader is away"}
        )

    def _end(self, partition: TopicPartition) -> FinalPartition:
        records = self.logs[partition]
        end = len(records)
        batches = tuple(
            LoggedBatch(r.offset, r.offset, 0, 1, 0, r.offset, r.offset, True, "", (r,))
            for r in records
        )
        shown = tuple(r for r in records if (partition, r.offset) not in self.hidden)
        return FinalPartition(partition, "id", 0, end, end, batches, shown)
