"""An administrator that creates and deletes topics, adds partitions, deletes records.

A request may take effect although no answer arrives, so each request is recorded before it is sent,
and its result only with the answer.

Parameters: `flavor`, `volatile` (topics that come and go, ("v",)), `growing` (topics that get more
partitions, ()), `trimmed` (topics whose records are deleted, ()), `short_lived` (topics whose
retention is changed, ()), `partitions_max` (6), `pace_ms` (800), `topic_configs`.

A change of retention is recorded as `RecordsDeleted` up to `ANY_OFFSET`: from then on any record of
the topic may be deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from oncelog.client import admin_requests, requests
from oncelog.client.values import NewTopic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages import delete_records
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import RecordsDeleted, TopicChanged, TopicChanging
from oncelog.simulation.peers.fetching import Fetcher
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["ANY_OFFSET", "run"]

ANY_OFFSET: Final = INT64_MAX

_EXPECTED: Final = {
    ApiKey.CREATE_TOPICS: {ErrorCode.topic_already_exists},
    ApiKey.DELETE_TOPICS: {ErrorCode.unknown_topic_or_partition},
    ApiKey.CREATE_PARTITIONS: {
        ErrorCode.invalid_partitions,
        ErrorCode.unknown_topic_or_partition,
    },
    ApiKey.DELETE_RECORDS: {
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.policy_violation,
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {ErrorCode.unknown_topic_or_partition},
}
"""Errors that another client or an earlier try may cause."""


async def run(context: ClientContext) -> None:
    """Change topics until told to stop; then create every missing volatile topic."""
    administrator = _PeerAdministrator(context)
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 800)))
        await administrator.change_something()
    await administrator.settle()
    context.progress("settled")


class _PeerAdministrator:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self._fetcher = Fetcher(context, self._wire, committed=False)
        self._timeout_ms = self._wire.timeout_ms
        configs: Mapping[str, str] = context.get("topic_configs", {})
        self._configs = dict(configs)

    def _topics(self, kind: str, default: Sequence[str] = ()) -> Sequence[str]:
        found: Sequence[str] = self._context.get(kind, default)
        return found

    async def change_something(self) -> None:
        """Change one topic, if the parameters allow a change."""
        choices: list[tuple[Callable[[str], Awaitable[None]], Sequence[str]]] = [
            (self._create_or_delete, self._topics("volatile", ("v",))),
            (self._grow, self._topics("growing")),
            (self._trim, self._topics("trimmed")),
            (self._shorten, self._topics("short_lived")),
        ]
        possible = [(change, topics) for change, topics in choices if topics]
        if possible:
            change, topics = self._context.rng.choice(possible)
            await change(self._context.rng.choice(topics))

    async def settle(self) -> None:
        """Create every missing volatile topic, so that its producers can write."""
        for topic in self._topics("volatile", ("v",)):
            attempt = 0
            while not (await self._wire.refresh([topic]) and topic in self._wire.topics):
                await self._create(topic)
                await self._context.back_off(attempt)
                attempt += 1
        self._wire.close()

    # --- changes ----------------------------------------------------------------------

    async def _create_or_delete(self, topic: str) -> None:
        await self._wire.refresh([topic])
        if topic in self._wire.topics:
            await self._delete(topic)
            if self._context.chance(0.5):
                return
        await self._create(topic)

    async def _create(self, topic: str) -> None:
        count = self._context.rng.randint(1, 3)
        self._context.record(TopicChanging, topic, "create")
        request = admin_requests.create_topics_request(
            [NewTopic(topic, count, 1, self._configs)], self._timeout_ms
        )
        answer = await self._ask(ApiKey.CREATE_TOPICS, request)
        if answer is not None and self._is_done(
            ApiKey.CREATE_TOPICS, [t.error_code for t in answer.topics]
        ):
            self._context.record(TopicChanged, topic, "create", count)

    async def _delete(self, topic: str) -> None:
        self._context.record(TopicChanging, topic, "delete")
        request = admin_requests.delete_topics_request([topic], self._timeout_ms)
        answer = await self._ask(ApiKey.DELETE_TOPICS, request)
        if answer is not None and self._is_done(
            ApiKey.DELETE_TOPICS, [t.error_code for t in answer.responses]
        ):
            self._context.record(TopicChanged, topic, "delete")

    async def _grow(self, topic: str) -> None:
        await self._wire.refresh([topic])
        count = len(self._wire.partitions([topic]))
        if not 0 < count < int(self._context.get("partitions_max", 6)):
            return
        count += 1
        self._context.record(TopicChanging, topic, "partitions")
        request = admin_requests.create_partitions_request({topic: count}, self._timeout_ms)
        answer = await self._ask(ApiKey.CREATE_PARTITIONS, request)
        if answer is not None and self._is_done(
            ApiKey.CREATE_PARTITIONS, [result.error_code for result in answer.results]
        ):
            self._context.record(TopicChanged, topic, "partitions", count)

    async def _trim(self, topic: str) -> None:
        """Delete records of one partition up to a random offset."""
        await self._wire.refresh([topic])
        known = self._wire.partitions([topic])
        if not known:
            return
        at = self._context.rng.choice(known)
        earliest = await self._fetcher.list_offsets({at: requests.EARLIEST})
        latest = await self._fetcher.list_offsets({at: requests.LATEST})
        if at not in earliest or latest.get(at, 0) <= earliest[at]:
            return
        offset = self._context.rng.randint(earliest[at], latest[at])
        self._context.record(RecordsDeleted, at, offset)
        answer = await self._ask(
            ApiKey.DELETE_RECORDS, self._delete_records(at, offset), at_leader_of=at
        )
        if answer is None:
            return
        results = [p for t in answer.topics for p in t.partitions]
        is_done = self._is_done(ApiKey.DELETE_RECORDS, [p.error_code for p in results])
        if is_done and any(p.low_watermark < offset for p in results):
            self._context.stuck(f"DeleteRecords of {at} up to {offset} gave {results}")

    def _delete_records(
        self, at: TopicPartition, offset: int
    ) -> delete_records.DeleteRecordsRequest:
        partition = delete_records.DeleteRecordsPartition(
            partition_index=at.partition, offset=offset
        )
        topic = delete_records.DeleteRecordsTopic(name=at.topic, partitions=(partition,))
        return delete_records.DeleteRecordsRequest(
            topics=(topic,),
            timeout_ms=int(self._timeout_ms),
        )

    async def _shorten(self, topic: str) -> None:
        """Change a topic's retention, and sometimes reset it to the broker's default."""
        rng = self._context.rng
        await self._wire.refresh([topic])
        for at in self._wire.partitions([topic]):
            self._context.record(RecordsDeleted, at, ANY_OFFSET)
        key, value = rng.choice(
            (
                ("retention.ms", str(rng.randint(100, 5_000))),
                ("retention.bytes", str(rng.randint(0, 20_000))),
                ("segment.bytes", str(rng.choice((1_048_576, 2_097_152)))),
            )
        )
        to_set, to_delete = ({}, [key]) if rng.random() < 0.3 else ({key: value}, [])
        request = admin_requests.alter_configs_request("topic", topic, to_set, to_delete)
        answer = await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        if answer is not None:
            codes = [response.error_code for response in answer.responses]
            self._is_done(ApiKey.INCREMENTAL_ALTER_CONFIGS, codes)

    # --- asking -----------------------------------------------------------------------

    async def _ask(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        at_leader_of: TopicPartition | None = None,
    ) -> ResponseT | None:
        to = None if at_leader_of is None else self._wire.leader(at_leader_of)
        try:
            return await self._wire.ask(api, request, to=to)
        except LostError:
            return None

    def _is_done(self, api: ApiKey, codes: Sequence[ErrorCode]) -> bool:
        """Return whether a response means that the request took effect."""
        failed = [code for code in codes if code is not ErrorCode.none]
        for code in failed:
            is_known = code.retriable or code in _EXPECTED[api]
            if not is_known and code is not ErrorCode.unknown_server_error:
                self._context.stuck(f"{api.name} answered {code.name}")
        return bool(codes) and not failed
