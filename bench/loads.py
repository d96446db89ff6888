"""The loads of librdkafka (confluent-kafka): small requests, transactions, bulk, reading back."""

import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import gauges
from bench.stats import percentiles
from bench.systems import Endpoint
from bench.work import (
    NEVER_POSTPONED,
    PARTITIONS,
    TIMEOUT_S,
    Plain,
    Window,
    Work,
    connected_to,
    delete_topic,
    fill,
    flush,
    folder_of,
    fresh_topic,
    is_mock,
    producer,
    timed_for,
)

BIG = (("linger.ms", 5), ("batch.size", 1_000_000))
SMALL = (("linger.ms", 0), ("batch.size", 16_384))
VALUE = bytes(100)
WINDOW_S = 2.0
SUSTAINED_S = 6.0
DIRTY_SHARE_MAX = 0.4
TOUCHED_SHARE = 1.3


class OneRecord(Plain):
    """Produce and flush one record, again and again."""

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system)
        self._client = producer(system, **{"linger.ms": 0})

    def run(self) -> Window:
        times = timed_for(self._one, WINDOW_S)
        return Window(percentiles(times), len(times) / sum(times), len(times))

    def _one(self) -> None:
        self._client.produce(self.topic, VALUE, partition=0)
        self._client.flush(TIMEOUT_S)


class TinyTransactions(Plain):
    """Begin, produce one record, commit, back to back."""

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system)
        self._client = transactional(system, self.topic)

    def run(self) -> Window:
        return of_transactions([timed_for(self._one, WINDOW_S)])

    def _one(self) -> None:
        one_transaction(self._client, self.topic, 0)


@dataclass(frozen=True, slots=True)
class ManyIds:
    """The same with several transactional ids at once, each in a thread of its own."""

    count: int

    def __call__(self, system: Endpoint) -> Work:
        return _ManyIds(system, self.count)


class _ManyIds(Plain):
    def __init__(self, system: Endpoint, count: int) -> None:
        super().__init__(system)
        self._clients = [transactional(system, f"{self.topic}-{n}") for n in range(count)]

    def run(self) -> Window:
        found: list[list[float]] = []

        def work(client: Producer, number: int) -> None:
            partition = number % PARTITIONS
            found.append(
                timed_for(lambda: one_transaction(client, self.topic, partition), WINDOW_S)
            )

        threads = [
            threading.Thread(target=work, args=(client, number))
            for number, client in enumerate(self._clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(found) < len(self._clients):
            raise RuntimeError("a transaction failed")
        return of_transactions(found)


def transactional(system: Endpoint, transactional_id: str) -> Producer:
    """A producer with its producer id."""
    client = producer(system, **{"transactional.id": transactional_id, "linger.ms": 0})
    client.init_transactions(TIMEOUT_S)
    return client


def one_transaction(client: Producer, topic: str, partition: int) -> None:
    """One record, committed."""
    client.begin_transaction()
    client.produce(topic, VALUE, partition=partition)
    client.commit_transaction(TIMEOUT_S)


def of_transactions(times: list[list[float]]) -> Window:
    """The window of some producers' transactions, which ran at the same time."""
    every = [each for one in times for each in one]
    rate = len(every) / max(sum(one) for one in times)
    return Window({"txn/s": rate, **percentiles(every)}, rate, len(every))


def window_mb(wanted: float) -> float:
    """How much a window may write: well below what the kernel begins to write to the disk."""
    return min(wanted, DIRTY_SHARE_MAX * gauges.dirty_background_mb())


@dataclass(frozen=True, slots=True)
class Bulk:
    """Produce records of one size, so many MB in a window."""

    value_bytes: int
    total_mb: float
    settings: tuple[tuple[str, object], ...]

    def __call__(self, system: Endpoint) -> Work:
        return _Bulk(system, self)


class _Bulk:
    """Each window has a topic of its own, which is deleted after it: its memory is used again."""

    def __init__(self, system: Endpoint, load: Bulk) -> None:
        self._system = system
        self._client = producer(system, **dict(load.settings))
        self._value = bytes(load.value_bytes)
        self._count = int(window_mb(load.total_mb) * 1_000_000) // load.value_bytes
        self._mb = self._count * load.value_bytes / 1e6
        self._topic = ""

    def prepare(self) -> None:
        freshen(self._system, self._mb)
        self._topic = fresh_topic(self._system)
        fill(self._client, self._topic, self._value, 2000)

    def run(self) -> Window:
        rate = self._mb / fill(self._client, self._topic, self._value, self._count)
        return Window({"MB/s": rate}, rate, self._mb / 1000)

    def settle(self) -> None:
        delete_topic(self._system, self._topic)

    def close(self) -> None:
        pass


def freshen(system: Endpoint, megabytes: float) -> None:
    """Have the next `megabytes` of page cache be memory that was just freed."""
    if not is_mock(system):
        gauges.touch(folder_of(system), TOUCHED_SHARE * megabytes)


@dataclass(frozen=True, slots=True)
class Consume:
    """Read so many MB of 1000-byte records back from the page cache."""

    total_mb: float

    def __call__(self, system: Endpoint) -> Work:
        return _Consume(system, self.total_mb)


class Filled(Plain):
    """A `Work` over a topic that was filled, and is on the disk as well as in the page cache."""

    def __init__(self, system: Endpoint, total_mb: float) -> None:
        super().__init__(system)
        self.count = int(window_mb(total_mb) * 1000)
        freshen(system, self.count / 1000)
        fill(producer(system, **dict(BIG)), self.topic, bytes(1000), self.count)
        gauges.wait_clean()


class _Consume(Filled):
    def __init__(self, system: Endpoint, total_mb: float) -> None:
        super().__init__(system, total_mb)
        self._client: Consumer | None = None

    def prepare(self) -> None:
        self._client = Consumer(
            {
                **connected_to(self.system),
                "group.id": "bench",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **NEVER_POSTPONED,
            }
        )

    def run(self) -> Window:
        assert self._client is not None
        begun = time.perf_counter()
        self._client.assign([TopicPartition(self.topic, n, 0) for n in range(PARTITIONS)])
        seen = 0
        while seen < self.count:
            seen += len(self._client.consume(10_000, 1.0))
            if time.perf_counter() - begun > TIMEOUT_S:
                raise RuntimeError(f"only {seen} of {self.count} records came")
        rate = self.count / 1000 / (time.perf_counter() - begun)
        return Window({"MB/s": rate}, rate, self.count / 1e6)

    def settle(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@dataclass(frozen=True, slots=True)
class Paced:
    """Bulk produce of 1000-byte records for some seconds, in transactions if a length is given."""

    transaction_s: float | None
    settings: tuple[tuple[str, object], ...] = ()

    def __call__(self, system: Endpoint) -> Work:
        return _Paced(system, self)


class _Paced:
    seconds = WINDOW_S

    def __init__(self, system: Endpoint, load: Paced) -> None:
        self._system = system
        self._transaction_s = load.transaction_s
        settings: dict[str, object] = {**dict(BIG), **dict(load.settings)}
        self._topic = fresh_topic(system)
        if load.transaction_s is not None:
            settings["transactional.id"] = self._topic
        self._client = producer(system, **settings)
        if load.transaction_s is not None:
            self._client.init_transactions(TIMEOUT_S)
        self._first = True

    def prepare(self) -> None:
        freshen(self._system, window_mb(1000))
        if not self._first:
            self._topic = fresh_topic(self._system)
        self._first = False
        if self._transaction_s is None:
            fill(self._client, self._topic, bytes(1000), 2000)

    def run(self) -> Window:
        begun = time.perf_counter()
        count = 0
        while time.perf_counter() - begun < self.seconds:
            count += self._one()
        flush(self._client)
        rate = count / 1000 / (time.perf_counter() - begun)
        return Window({"MB/s": rate}, rate, count / 1e6)

    def settle(self) -> None:
        delete_topic(self._system, self._topic)

    def close(self) -> None:
        pass

    def _one(self) -> int:
        """One transaction, or a quarter of a second without; returns the records sent."""
        client, topic, value = self._client, self._topic, bytes(1000)
        if self._transaction_s is not None:
            client.begin_transaction()
        end = time.perf_counter() + (self._transaction_s or 0.25)
        count = 0
        while time.perf_counter() < end:
            for number in range(50):
                while True:
                    try:
                        client.produce(topic, value, partition=number % PARTITIONS)
                        break
                    except BufferError:
                        client.poll(0.01)
            client.poll(0)
            count += 50
        if self._transaction_s is not None:
            client.commit_transaction(TIMEOUT_S)
        return count


class Sustained(_Paced):
    """Bulk produce while the page cache already holds the dirty pages at which writers are held up.

    So the disk sets the pace. The harness fills the cache, the broker is measured after that.
    """

    seconds = SUSTAINED_S

    def __init__(self, system: Endpoint) -> None:
        super().__init__(system, Paced(None, (("queue.buffering.max.kbytes", 65_536),)))
        # One for all brokers and windows: once written it can be made dirty without new memory.
        self._filler = folder_of(system).parent / "filler"

    def prepare(self) -> None:
        super().prepare()
        gauges.fill_dirty(self._filler)

    def close(self) -> None:
        super().close()
        self._filler.unlink(missing_ok=True)
        gauges.wait_clean()
