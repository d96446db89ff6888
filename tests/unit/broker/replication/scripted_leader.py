"""A leader in memory that answers fetches as a test tells it, and a follower's broker beside it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from oncelog.broker.partitions.following import Following, ReplicaFetchers
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.broker.partitions.partition import Partition
from oncelog.broker.peers.connections import PeerNetwork
from oncelog.broker.replication.fetcher import FetcherParts, FetchSettings
from oncelog.broker.replication.fetchers import Fetchers
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    PartitionImage,
    TopicDelta,
    TopicImage,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.codec import encode_response
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopicResponse,
    encode_fetch_response,
    parse_fetch_request,
)
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime import Lane
from tests.support.counted_clock import CountedClock
from tests.support.folders import open_logs
from tests.unit.broker.support import ME, NOW_MS, apply
from tests.unit.runtime.memory_network import MemoryNetwork, MemoryTransport

LEADER, OTHER = 2, 3
TOPIC = UUID(int=1)
BROKER_EPOCH = 17
SESSION = 5
LONG_MS = 600_000
WAIT_S = 20


class Asked:
    """One fetch, until it is answered."""

    def __init__(self, request: FetchRequest, transport: MemoryTransport, number: int) -> None:
        self.request = request
        self.transport = transport
        self._number = number

    @property
    def partitions(self) -> dict[int, FetchPartition]:
        """What it asks, by partition."""
        return {each.partition: each for topic in self.request.topics for each in topic.partitions}

    @property
    def offsets(self) -> dict[int, int]:
        """The offsets that it asks for, by partition."""
        return {number: each.fetch_offset for number, each in self.partitions.items()}

    @property
    def forgotten(self) -> set[int]:
        """The partitions that leave the session."""
        return {number for topic in self.request.forgotten_topics for number in topic.partitions}

    def answer(
        self,
        *partitions: FetchPartitionResponse,
        error: ErrorCode = ErrorCode.none,
        session_id: int = SESSION,
        topic_id: UUID = TOPIC,
    ) -> None:
        """Answer it."""
        topics = [FetchTopicResponse(None, topic_id, partitions)] if partitions else []
        version = ADVERTISED[ApiKey.FETCH].max
        reply = encode_fetch_response(
            version, self._number, topics, error=error, session_id=session_id
        )
        self.transport.feed(b"".join(reply))


def records(base_offset: int, count: int = 1, epoch: int = 0, timestamp_ms: int = NOW_MS) -> bytes:
    """One batch as a leader has it in its log."""
    made = [Record(i, timestamp_ms, b"k", b"%d" % (base_offset + i)) for i in range(count)]
    data = build_batch(made, base_offset=base_offset)
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def given(
    number: int = 0,
    data: bytes | None = None,
    *,
    error: ErrorCode = ErrorCode.none,
    high_watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchPartitionResponse:
    """The answer for one partition."""
    return FetchPartitionResponse(
        number,
        error,
        high_watermark,
        high_watermark,
        start,
        records=data,
        diverging_epoch=diverging,
    )


def following(
    epoch: int = 0, leader: int = LEADER, isr: tuple[int, ...] = (LEADER,)
) -> PartitionImage:
    """A partition's state in which this broker follows, unless it is the leader."""
    return PartitionImage(leader, epoch, isr, (LEADER, ME))


class Bench:
    """A broker's partitions with their fetchers, whose leaders are scripted."""

    def __init__(self, folder: Path, config: Mapping[str, object], topic_config: Any) -> None:
        self.networks = MemoryNetwork(self._on_frame)
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        """The fetches that came."""
        settings = {
            "replica.fetch.backoff.ms": 1,
            "replica.fetch.wait.max.ms": 30_000,
            "replica.socket.timeout.ms": 2 * LONG_MS,
        }
        self.config = BrokerConfig({k: str(v) for k, v in {**settings, **config}.items()})
        self.logs = open_logs(folder, node_id=ME, now_ms=NOW_MS)
        self.disk_moves = asyncio.Event()
        self.disk_moves.set()
        self.works_count = 0
        self.clock = CountedClock()
        self.broker_epoch = BROKER_EPOCH
        """The life of the follower's broker."""
        disk: Any = self
        self.partitions = PartitionManager(
            ME, self.config, self.logs, disk, self.clock, random.Random(1)
        )
        self.brokers = {
            each: BrokerImage(each, f"host-{each}", 9092, broker_epoch=each + 15)
            for each in (ME, LEADER, OTHER)
        }
        self.brokers[ME] = BrokerImage(ME, "me", 9092, broker_epoch=BROKER_EPOCH)
        self.partitions.make_fetchers = self._fetchers
        self.topic_config = topic_config
        self.topic = TopicImage("t", TOPIC, (), topic_config)

    def _fetchers(self, made_for: Following) -> ReplicaFetchers:
        parts = FetcherParts(
            ME,
            FetchSettings.of(self.config),
            PeerNetwork(self.networks, "PLAINTEXT"),
            self.clock,
            self.brokers.get,
            lambda: self.broker_epoch,
            made_for,
        )
        self.fetchers = Fetchers(parts, self.config.get_int("num.replica.fetchers"))
        return self.fetchers

    async def run(self, work: Any, lane: Lane = Lane.UPKEEP) -> Any:
        """The disk's executor: work begins when the disk does not hang, and is done at once."""
        self.works_count += 1
        if lane is Lane.SYNC:
            await self.disk_moves.wait()
        return work()

    async def begin(self, *states: PartitionImage) -> None:
        """Make the topic with these partitions."""
        self.topic = TopicImage("t", TOPIC, states, self.topic_config)
        await apply(self.partitions, ImageDelta(created=(self.topic,)))

    async def change(self, *states: PartitionImage) -> None:
        """Give the partitions these states."""
        self.topic = TopicImage("t", TOPIC, states, self.topic_config)
        delta = ImageDelta(changed=(TopicDelta(self.topic, range(len(states))),))
        await apply(self.partitions, delta)

    def partition(self, number: int = 0) -> Partition:
        found = self.partitions.get("t", number)
        assert found is not None
        return found

    def append(self, *batches: bytes, number: int = 0) -> None:
        """Have a follower's log begin with what a leader had."""
        held = self.partition(number)
        result = held.append_as_follower(
            memoryview(b"".join(batches)), high_watermark=0, log_start_offset=0, now_ms=NOW_MS
        )
        assert result.error is ErrorCode.none

    async def next(self) -> Asked:
        """Return the next fetch."""
        async with asyncio.timeout(WAIT_S):
            return await self.asked.get()

    async def rest(self) -> None:
        """Let everything go on that goes on by itself."""
        for _ in range(50):
            await asyncio.sleep(0)

    def _on_frame(self, transport: MemoryTransport, frame: bytes) -> None:
        header = parse_request_header(frame)
        version, number = header.api_version, header.correlation_id
        if header.api_key == ApiKey.API_VERSIONS:
            keys = tuple(
                ApiVersion(api_key=key, min_version=r.min, max_version=r.max)
                for key, r in ADVERTISED.items()
            )
            answer = ApiVersionsResponse(api_keys=keys)
            transport.feed(encode_response(ApiKey.API_VERSIONS, version, number, answer))
            return
        request = parse_fetch_request(frame, version, header.body_offset)
        self.asked.put_nowait(Asked(request, transport, number))


@asynccontextmanager
async def bench(
    folder: Path, config: Mapping[str, object] | None = None, topic: Any = None
) -> AsyncIterator[Bench]:
    """A broker's partitions in the background; what must not happen there fails the test."""
    made = Bench(folder, config or {}, topic or {})
    task = asyncio.create_task(made.partitions.run())
    try:
        await made.rest()
        yield made
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])
        made.partitions.close()
        made.logs.close()
