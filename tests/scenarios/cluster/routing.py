"""One client's way to whoever coordinates and leads: as stock clients do, it asks until it is told.

A request whose answer is lost is sent again, to the coordinator that is named then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.produce import (
    ProducePartitionResponse,
    encode_produce_request,
    parse_produce_response,
)
from oncelog.simulation.peers.wire import GROUP, TRANSACTION, Address, LostError, PeerWire

__all__ = ["Route"]

MOVED = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
    }
)
"""Answers after which a client looks up whom to ask, and asks again."""
PAUSE_MS = 50.0


class Route:
    """Has the `ask` of `tests.unit.broker.context.Client`, over all brokers."""

    def __init__(self, wire: PeerWire, addresses: list[Address]) -> None:
        self.only: int | None = None
        """The one broker that is asked, once; None: whoever coordinates, until it answers."""
        self.lost: list[str] = []
        """Who did not answer."""
        self._wire = wire
        self._addresses = addresses

    async def ask(self, api: ApiKey, version: int | None = None, **values: Any) -> Any:
        """Ask the coordinator of the id or group in the request."""
        request = codec.request_class(api)(**values)
        kind, key = _key_of(api, values)

        async def attempt(to: Address) -> Any:
            return await self._wire.ask(api, request, to=to, at_most=version)

        async def find() -> Address | None:
            self._wire.forget_coordinator(kind, key)
            return await self._wire.coordinator(kind, key)

        return await self._until_told(find, attempt)

    async def send_records(
        self, version: int, records: bytearray, at: TopicPartition, **options: Any
    ) -> ProducePartitionResponse:
        """Send one Produce request to the partition's leader."""

        async def attempt(to: Address) -> ProducePartitionResponse:
            connection = await self._wire.open(to)
            buffers = encode_produce_request(
                version,
                connection.next_correlation_id(),
                self._wire.context.name,
                timeout_ms=int(self._wire.timeout_ms),
                topics=[(at.topic, None, [(at.partition, records)])],
                **options,
            )
            answer = connection.submit(ApiKey.PRODUCE, version, buffers)
            body = await self._wire.wait(connection, answer, self._wire.timeout_ms)
            return parse_produce_response(body, version).topics[0].partitions[0]

        async def find() -> Address | None:
            await self._wire.refresh([at.topic])
            return self._wire.leader(at)

        found: ProducePartitionResponse = await self._until_told(find, attempt)
        return found

    async def _until_told(
        self,
        find: Callable[[], Awaitable[Address | None]],
        attempt: Callable[[Address], Awaitable[Any]],
    ) -> Any:
        if self.only is not None:
            return await attempt(self._addresses[self.only])
        while True:
            to = await find()
            if to is not None:
                with suppress(LostError):
                    answer = await attempt(to)
                    if not MOVED.intersection(_errors_of(answer)):
                        return answer
                    await self._wire.context.clock.sleep(PAUSE_MS)
                    continue
                self._note_lost(to)
            await self._wire.context.clock.sleep(PAUSE_MS)

    def _note_lost(self, to: Address) -> None:
        text = f"no answer from broker {self._addresses.index(to)}"
        if text not in self.lost:
            self.lost.append(text)


def _key_of(api: ApiKey, values: Mapping[str, Any]) -> tuple[int, str]:
    """Which coordinator a request is for."""
    if "transactions" in values:
        return TRANSACTION, values["transactions"][0].transactional_id
    if "transactional_ids" in values:
        return TRANSACTION, values["transactional_ids"][0]
    if "groups" in values:
        return GROUP, values["groups"][0].group_id
    if "transactional_id" in values and api is not ApiKey.TXN_OFFSET_COMMIT:
        return TRANSACTION, values["transactional_id"]
    return GROUP, values["group_id"]


def _errors_of(answer: Any) -> Iterator[int]:
    """All error codes in a response."""
    if isinstance(answer, ProducePartitionResponse):
        yield answer.error
    elif isinstance(answer, tuple):
        for each in answer:
            yield from _errors_of(each)
    elif is_dataclass(answer):
        for each in fields(answer):
            value = getattr(answer, each.name)
            if each.name.endswith("error_code"):
                yield value
            else:
                yield from _errors_of(value)
