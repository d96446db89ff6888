"""A client without fault: what must work for it whatever others send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from oncelog.protocol.messages import offset_fetch
from oncelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.protocol.record import Record, build_batch

PRODUCE_VERSION = 9
FETCH_VERSION = 12
_CORRELATION_ID = 4242


class Unhealthy(Exception):  # noqa: N818 - names what the client found the broker to be
    """The broker did not serve a client that did nothing wrong."""


class Peer:
    """Asks one thing after the other. `settle` gives the answer's bytes, sizes included."""

    def __init__(self, wire: Any, settle: Callable[[Any], Awaitable[Any]]) -> None:
        self.wire = wire
        self._settle = settle

    async def check(self, topic: str, value: bytes) -> None:
        """Versions, metadata, a record there and back, a producer id. Raises `Unhealthy`."""
        versions = await self.ask(
            ApiKey.API_VERSIONS, 3, client_software_name="healthy", client_software_version="1"
        )
        _expect(versions.error_code is ErrorCode.none, f"ApiVersions: {versions.error_code}")
        offset = await self._produce(topic, value)
        records = await self._fetch(topic, offset)
        _expect(value in records, f"the record at {offset} of {topic} does not come back")
        for key_type in (0, 1):
            found = await self.ask(
                ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=("healthy",)
            )
            error = found.coordinators[0].error_code
            _expect(error is ErrorCode.none, f"FindCoordinator {key_type}: {error}")
        given = await self.ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id="healthy",
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        _expect(given.error_code is ErrorCode.none, f"InitProducerId: {given.error_code}")
        found = await self.ask(
            ApiKey.OFFSET_FETCH, 7, groups=(_group("healthy", topic),), require_stable=True
        )
        error = found.groups[0].error_code
        _expect(error is ErrorCode.none, f"OffsetFetch: {error}")

    async def create_topics(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Make the topics that are not there, of two partitions each."""
        topics = tuple(
            CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=tuple(
                    CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
                ),
            )
            for name, settings in configs.items()
        )
        await self.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=10_000)

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        request = codec.request_class(api)(**fields)
        frame = codec.encode_request(api, version, _CORRELATION_ID, "healthy", request)
        answer = await self._exchange(frame)
        _, offset = codec.parse_response_header(api, version, answer)
        return codec.parse_response(api, version, answer, offset)

    async def _produce(self, topic: str, value: bytes) -> int:
        batch = build_batch([Record(0, 1_700_000_000_000, None, value)])
        parts = encode_produce_request(
            PRODUCE_VERSION,
            _CORRELATION_ID,
            "healthy",
            transactional_id=None,
            acks=-1,
            timeout_ms=5000,
            topics=[(topic, None, [(0, batch)])],
        )
        answer = await self._exchange(b"".join(parts))
        _, offset = codec.parse_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, answer)
        outcome = parse_produce_response(answer, PRODUCE_VERSION, offset).topics[0].partitions[0]
        _expect(outcome.error == 0, f"Produce: error {outcome.error}")
        return outcome.base_offset

    async def _fetch(self, topic: str, offset: int) -> bytes:
        wanted = [FetchTopic(topic, None, [FetchPartition(0, offset, 2**20, -1)])]
        request = FetchRequest(0, 0, 2**20, 0, 0, -1, wanted)
        frame = encode_fetch_request(FETCH_VERSION, _CORRELATION_ID, "healthy", request)
        answer = await self._exchange(bytes(frame))
        _, body = codec.parse_response_header(ApiKey.FETCH, FETCH_VERSION, answer)
        part = parse_fetch_response(answer, FETCH_VERSION, body).topics[0].partitions[0]
        _expect(part.error == 0, f"Fetch: error {part.error}")
        records = part.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        return bytes(records)

    async def _exchange(self, frame: bytes) -> bytes:
        self.wire.give(len(frame).to_bytes(4, "big") + frame)
        answer: bytes = (await self._settle(self.wire)).answer
        _expect(len(answer) >= 8, f"no answer: {answer!r}")
        size = int.from_bytes(answer[:4], "big")
        _expect(size == len(answer) - 4, f"{len(answer) - 4} bytes answered as {size}")
        _expect(int.from_bytes(answer[4:8], "big") == _CORRELATION_ID, "another's answer")
        return answer[4:]


def _group(group_id: str, topic: str) -> Any:
    return offset_fetch.OffsetFetchRequestGroup(
        group_id=group_id,
        topics=(offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=(0,)),),
    )


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise Unhealthy(message)
