"""A broker and the transactional clients of a scenario: one request each, its answer as text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from oncelog.client.machines.fetching import Aborted, visible_batches
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.messages import txn_offset_commit
from oncelog.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from oncelog.protocol.produce import ProducePartitionResponse
from oncelog.runtime.clock import SystemClock
from tests.unit.broker.apis.producing import GROUP, ID, TIMEOUT
from tests.unit.broker.context import READ_TIMEOUT_S
from tests.unit.broker.raw import error_of, fetch, produce, values
from tests.unit.broker.support import batch

NO_ID = -1


class Scene(Protocol):
    """Where clients connect to what a scenario is about."""

    async def connect(self) -> Any:
        """A client with `ask`, as `tests.unit.broker.context.Client` has it."""


@dataclass
class Identity:
    """What one client holds of its producer, and its connection."""

    client: Any
    producer_id: int = NO_ID
    epoch: int = NO_ID
    sequences: dict[str, int] = field(default_factory=dict)


@dataclass
class Command:
    """`NAME VERB WORD ... KEY=VALUE ...`."""

    name: str
    verb: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Command:
        name, verb, *rest = text.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        return cls(name, verb, [word for word in rest if "=" not in word], options)

    def number(self, key: str, default: int) -> int:
        return int(self.options.get(key, default))

    def version(self, default: int) -> int:
        return self.number("v", default)


class Stage:
    """Performs a scenario's commands on a broker.

    Producer ids are told as P1, P2 ... in the order in which the broker gave them.
    """

    def __init__(self, context: Scene, now_ms: Callable[[], int] | None = None) -> None:
        self._context = context
        self._now_ms = now_ms or SystemClock().now_ms
        self._identities: dict[str, Identity] = {}
        self._producer_ids: list[int] = []

    async def perform(self, text: str) -> list[str]:
        command = Command.parse(text)
        if command.name not in self._identities:
            self._identities[command.name] = Identity(await self._context.connect())
        return await self.carry_out(self._identities[command.name], command)

    async def carry_out(self, identity: Identity, command: Command) -> list[str]:
        """What comes of one command of a client."""
        match command.verb:
            case "init":
                lines = [await self._init(identity, command)]
            case "add":
                lines = await self._add(identity, command)
            case "produce":
                lines = [await self._produce(identity, command)]
            case "add-offsets":
                lines = [await self._add_offsets(identity, command)]
            case "commit-offset":
                lines = [await self._commit_offset(identity, command)]
            case "end":
                lines = [await self._end(identity, command)]
            case "mark":
                lines = [await self._mark(identity, command)]
            case "list":
                lines = [await self._list(identity, command)]
            case "read":
                lines = [await self._read(identity, command.words[0])]
            case verb:
                raise AssertionError(f"no such command: {verb}")
        return lines

    def _taken(self, identity: Identity, answer: Any) -> str:
        """Go on under the producer id and epoch of an answer, unless it is an error."""
        if answer.error_code is not ErrorCode.none:
            return told(answer.error_code)
        identity.producer_id, identity.epoch = answer.producer_id, answer.producer_epoch
        identity.sequences.clear()
        if identity.producer_id not in self._producer_ids:
            self._producer_ids.append(identity.producer_id)
        number = self._producer_ids.index(identity.producer_id) + 1
        return told(answer.error_code, f"producer=P{number} epoch={identity.epoch}")

    async def _init(self, identity: Identity, command: Command) -> str:
        recovers = "recover" in command.words
        answer = await identity.client.ask(
            ApiKey.INIT_PRODUCER_ID,
            command.version(4),
            transactional_id=_id(command),
            transaction_timeout_ms=command.number("timeout", TIMEOUT),
            producer_id=identity.producer_id if recovers else NO_ID,
            producer_epoch=identity.epoch if recovers else NO_ID,
        )
        return self._taken(identity, answer)

    async def _add(self, identity: Identity, command: Command) -> list[str]:
        topics = tuple(
            add_partitions.AddPartitionsToTxnTopic(name=name, partitions=(index,))
            for name, index in map(partition_of, command.words)
        )
        answer = await identity.client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            command.version(3),
            transactions=(
                add_partitions.AddPartitionsToTxnTransaction(
                    transactional_id=_id(command),
                    producer_id=identity.producer_id,
                    producer_epoch=command.number("epoch", identity.epoch),
                    topics=topics,
                ),
            ),
        )
        return [
            f"{topic.name}-{partition.partition_index} " + told(partition.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        ]

    async def _produce(self, identity: Identity, command: Command) -> str:
        (name,) = command.words[:1]
        topic, index = partition_of(name)
        is_plain = "plain" in command.words
        records = batch(
            producer_id=identity.producer_id,
            epoch=command.number("epoch", identity.epoch),
            sequence=command.number("sequence", identity.sequences.get(name, 0)),
            transactional=not is_plain,
            timestamp_ms=self._now_ms(),
        )
        answer = await self.send_records(
            identity.client,
            command.version(12),
            records,
            acks=command.number("acks", -1),
            transactional_id=None if is_plain or "no-id" in command.words else _id(command),
            topic=topic,
            partition=index,
        )
        if error_of(answer) is ErrorCode.none and "sequence" not in command.options:
            identity.sequences[name] = identity.sequences.get(name, 0) + 1
        return told(answer.error, f"offset={answer.base_offset}")

    async def send_records(
        self, client: Any, version: int, records: bytearray, **options: Any
    ) -> ProducePartitionResponse:
        """One Produce request."""
        return await produce(client, version, records, **options)

    async def _add_offsets(self, identity: Identity, command: Command) -> str:
        answer = await identity.client.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            command.version(3),
            transactional_id=_id(command),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=GROUP,
        )
        return told(answer.error_code)

    async def _commit_offset(self, identity: Identity, command: Command) -> str:
        version = command.version(5)
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=int(command.words[0]),
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name=command.options.get("topic", "t"), partitions=(partition,)
        )
        member = {
            "generation_id_or_member_epoch": command.number("generation", -1),
            "member_id": command.options.get("member", ""),
        }
        answer = await identity.client.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=_id(command),
            group_id=GROUP,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=(topic,),
            **(member if version >= 3 else {}),
        )
        return told(answer.topics[0].partitions[0].error_code)

    async def _end(self, identity: Identity, command: Command) -> str:
        version = command.version(5)
        answer = await identity.client.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=_id(command),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=command.words == ["commit"],
        )
        return self._taken(identity, answer) if version >= 5 else told(answer.error_code)

    async def _mark(self, identity: Identity, command: Command) -> str:
        """A marker for the transaction of another client, as a coordinator would send it."""
        owner = self._identities[command.options["of"]]
        outcome, *names = command.words
        topic, index = partition_of(names[0])
        marker = WritableTxnMarker(
            producer_id=owner.producer_id,
            producer_epoch=command.number("epoch", owner.epoch),
            coordinator_epoch=command.number("coordinator", 0),
            transaction_result=outcome == "commit",
            topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(index,)),),
            transaction_version=command.number("level", 0),
        )
        answer = await identity.client.ask(ApiKey.WRITE_TXN_MARKERS, markers=(marker,))
        return told(answer.markers[0].topics[0].partitions[0].error_code)

    async def _list(self, identity: Identity, command: Command) -> str:
        answer = await identity.client.ask(
            ApiKey.LIST_TRANSACTIONS, transactional_id_pattern=command.options.get("pattern")
        )
        states = (
            f"{state.transactional_id} {state.transaction_state}"
            for state in answer.transaction_states
        )
        return told(answer.error_code, ", ".join(sorted(states)))

    async def _read(self, identity: Identity, name: str) -> str:
        """What a read_committed consumer is given, once every end that was decided is marked."""
        await self._all_marked(identity.client)
        topic, index = partition_of(name)
        found = await fetch(identity.client, isolation_level=1, topic=topic, partition=index)
        aborted = [Aborted(first, pid) for pid, first in found.aborted_transactions or ()]
        visible = visible_batches(bytes(found.records or b""), 0, aborted)
        is_open = found.last_stable_offset < found.high_watermark
        return f"{len(values(visible.batches))} committed" + (", one open" if is_open else "")

    async def _all_marked(self, client: Any) -> None:
        prepared = ("PrepareAbort", "PrepareCommit")
        async with asyncio.timeout(READ_TIMEOUT_S):
            is_marked = False
            while not is_marked:
                answer = await client.ask(ApiKey.LIST_TRANSACTIONS, state_filters=prepared)
                is_marked = not answer.transaction_states


def _id(command: Command) -> str:
    return command.options.get("id", ID)


def told(error: int, and_then: str = "") -> str:
    name = ErrorCode(error).name.upper()
    return f"{name} {and_then}".strip() if error == ErrorCode.none else name


def partition_of(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))
