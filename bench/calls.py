"""`python -m bench.calls [--metrics]`: how many Python functions the broker calls for one request.

What is counted: the starts of functions that are written in oncelog's own files ('call' events of
`sys.setprofile`; resuming a coroutine or a generator is one too) after a request's bytes have
arrived, until the broker is at rest again. So its reply is included, and what the request causes in
later turns of the loop, as the markers and COMPLETE of an EndTxn. `everywhere` adds functions of
libraries and generated ones (named tuples, dataclasses, kio), which are cheaper or not ours.

The broker and its client share one thread, and the client turns the loop by hand until nothing more
happens. A request comes in a later millisecond than the last, so it moves the timers it renews.
The figures repeat exactly on one version of Python. Each request is sent many times and the
smallest count is taken, because now and then one carries a little more (an index entry, a periodic
task that came due). The frames are made by hand, so the module measures any build of the broker.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from struct import pack as packed

from rich.console import Console
from rich.table import Table

from bench.counting import Calls, Client, CountingClient, compact, string, uvarint
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.loop import new_event_loop
from tests.support.peer.in_loop import broker_in_loop

REPEATS = 41
WARM_UP = 12

TOPIC = "calls"
WIDE, WIDE_COUNT = "wide", 200
MADE_PARTITIONS = 20
GROUP = "calls"
TRANSACTIONAL_ID = "calls"

_PRODUCE, _FETCH, _METADATA, _FIND, _JOIN, _HEARTBEAT, _SYNC, _CREATE = 0, 1, 3, 10, 11, 12, 14, 19
_OFFSET_COMMIT = 8
_INIT_PRODUCER_ID, _ADD_PARTITIONS, _END_TXN = 22, 24, 26
_PRODUCER = Struct(">hqh")
"""Error, producer id, epoch: in the replies of InitProducerId and EndTxn 5."""


def _expect_no_error(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"{what} was answered with error {error}")


class Requests:
    """One method per counted request; each puts the broker into the state it needs first."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic_id = self._wide_id = bytes(16)
        self._session = (0, 0)
        self._wide_reads = 0
        self._producer = (-1, -1)
        self._sequence = 0
        self._added = False
        self._group = 0
        self._member = ""
        self._generation = -1
        self._offset = 0
        self._topics_made = 0

    async def prepare(self) -> None:
        """Topics of one and of many partitions, both coordinators, a producer, a stable group."""
        topics = string(TOPIC) + packed(">ihii", 1, 1, 0, 0)
        topics += string(WIDE) + packed(">ihii", WIDE_COUNT, 1, 0, 0)
        await self._client.ask(_CREATE, 2, packed(">i", 2) + topics + packed(">i?", 60_000, False))
        for kind in (0, 1):
            await self._client.ask(_FIND, 2, string(GROUP) + packed(">b", kind))
        self._topic_id, self._wide_id = [await self._id_of(name) for name in (TOPIC, WIDE)]
        every = [(number, 0) for number in range(WIDE_COUNT)]
        opened = await self._fetch(self._wide_id, every, wait_ms=0)
        self._session = (int.from_bytes(opened[6:10], "big"), 1)
        # By the answer to this one all that there is was told.
        await self._fetch(self._wide_id, [], wait_ms=0)
        await self.init_producer_id()
        await self.join_group()

    # --- what is counted

    async def produce(self) -> Calls:
        """One record of 100 bytes, acks=all, without a producer id."""
        return await self._produce(None, build_batch([_record()]))

    async def fetch(self) -> Calls:
        """The one batch at offset 0, without a fetch session."""
        session, self._session = self._session, (0, -1)
        reply = await self._fetch(self._topic_id, [(0, 0)])
        self._session = session
        if len(reply) < 160:
            raise RuntimeError("Fetch gave no batch")
        return self._client.calls

    async def fetch_in_session(self) -> Calls:
        """One batch, in a session with many partitions that have nothing new."""
        turn, number = divmod(self._wide_reads, WIDE_COUNT)
        self._wide_reads += 1
        await self._produce(None, build_batch([_record()]), WIDE, number)
        reply = await self._fetch(self._wide_id, [])
        calls = self._client.calls
        if len(reply) < 160:
            raise RuntimeError("Fetch gave no batch")
        await self._fetch(self._wide_id, [(number, turn + 1)], wait_ms=0)
        return calls

    async def init_producer_id(self) -> Calls:
        """A transactional id without an open transaction takes its next epoch."""
        body = compact(TRANSACTIONAL_ID) + packed(">iqh", 60_000, -1, -1) + b"\0"
        reply = await self._client.ask(_INIT_PRODUCER_ID, 4, body, flexible=True)
        error, producer_id, epoch = _PRODUCER.unpack_from(reply, 4)
        self._producer = (producer_id, epoch)
        _expect_no_error(error, "InitProducerId")
        self._sequence = 0
        return self._client.calls

    async def add_partitions_to_txn(self) -> Calls:
        """The first partition of a transaction; the transaction is ended afterwards."""
        calls = await self._add_partitions()
        await self._end_txn_tv1()
        return calls

    async def end_txn(self) -> Calls:
        """The commit of a transaction of one record by the newer protocol (TV2)."""
        await self._produce(TRANSACTIONAL_ID, self._transactional_batch())
        return await self._end_txn()

    async def produce_in_txn(self) -> Calls:
        """The first record of a transaction (TV2), whose partition it adds; ended afterwards."""
        calls = await self._produce(TRANSACTIONAL_ID, self._transactional_batch())
        await self._end_txn()
        return calls

    async def _end_txn(self) -> Calls:
        body = compact(TRANSACTIONAL_ID) + packed(">qh?", *self._producer, True) + b"\0"
        reply = await self._client.ask(_END_TXN, 5, body, flexible=True)
        error, producer_id, epoch = _PRODUCER.unpack_from(reply, 4)
        self._producer = (producer_id, epoch)
        _expect_no_error(error, "EndTxn")
        self._sequence = 0
        return self._client.calls

    async def end_txn_tv1(self) -> Calls:
        """The same by the older protocol, as librdkafka speaks it."""
        await self._add_partitions()
        await self._produce(TRANSACTIONAL_ID, self._transactional_batch())
        return await self._end_txn_tv1()

    async def join_group(self) -> Calls:
        """A group's first and only member joins, with the two assignors of the Java client."""
        self._group += 1
        self._member = ""
        reply = await self._join_group()
        at = reply.index(b"calls-")
        self._member = reply[at : at + reply[at - 1] - 1].decode()
        return await self.join_group_again()

    async def join_group_again(self) -> Calls:
        """The only member of a stable group joins again."""
        reply = await self._join_group()
        calls = self._client.calls
        _expect_no_error(int.from_bytes(reply[4:6], "big"), "JoinGroup")
        self._generation = int.from_bytes(reply[6:10], "big")
        await self.sync_group()
        return calls

    async def sync_group(self) -> Calls:
        """The leader's assignment, stored in `__consumer_offsets`."""
        assignment = packed(">i", 1) + string(self._member) + packed(">i", 0)
        reply = await self._client.ask(_SYNC, 3, self._as_member() + assignment)
        _expect_no_error(int.from_bytes(reply[4:6], "big"), "SyncGroup")
        return self._client.calls

    async def heartbeat(self) -> Calls:
        """A member of a stable group."""
        reply = await self._client.ask(_HEARTBEAT, 3, self._as_member())
        _expect_no_error(int.from_bytes(reply[4:6], "big"), "Heartbeat")
        return self._client.calls

    async def offset_commit(self) -> Calls:
        """One offset of a member of a stable group."""
        self._offset += 1
        part = packed(">iiqi", 1, 0, self._offset, -1) + string("")
        topics = packed(">i", 1) + string(TOPIC) + part
        reply = await self._client.ask(_OFFSET_COMMIT, 7, self._as_member() + topics)
        _expect_no_error(int.from_bytes(reply[-2:], "big"), "OffsetCommit")
        return self._client.calls

    async def create_topics(self) -> Calls:
        """A topic with so many partitions that its files are what costs."""
        self._topics_made += 1
        topic = string(f"made-{self._topics_made}") + packed(">ihii", MADE_PARTITIONS, 1, 0, 0)
        body = packed(">i", 1) + topic + packed(">i?", 60_000, False)
        reply = await self._client.ask(_CREATE, 2, body)
        # Its name, without an error, and without a message.
        if not reply.endswith(b"\0\0\xff\xff"):
            raise RuntimeError("CreateTopics was answered with an error")
        return self._client.calls

    # --- pieces

    def _transactional_batch(self) -> bytearray:
        producer_id, epoch = self._producer
        self._sequence += 1
        return build_batch(
            [_record()],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence - 1,
            transactional=True,
        )

    async def _id_of(self, topic: str) -> bytes:
        body = b"\2" + bytes(16) + compact(topic) + b"\0" + b"\0\0\0"
        reply = await self._client.ask(_METADATA, 12, body, flexible=True)
        start = reply.index(compact(topic)) + len(compact(topic))
        return reply[start : start + 16]

    async def _fetch(
        self, topic_id: bytes, offsets: Sequence[tuple[int, int]], wait_ms: int = 500
    ) -> bytes:
        """Fetch in the session, or without one; the session's next request has its next epoch."""
        parts = b"".join(
            packed(">iiqiqi", number, -1, offset, -1, -1, 1) + b"\0" for number, offset in offsets
        )
        topics = b"\2" + topic_id + uvarint(len(offsets) + 1) + parts + b"\0"
        body = packed(">iiibii", wait_ms, 1, 52_428_800, 0, *self._session)
        body += (topics if offsets else b"\1") + b"\1\1\0"
        reply = await self._client.ask(_FETCH, 16, body, flexible=True)
        _expect_no_error(int.from_bytes(reply[4:6], "big"), "Fetch")
        if self._session[0]:
            self._session = (self._session[0], self._session[1] + 1)
        return reply

    async def _produce(
        self, transactional_id: str | None, batch: bytearray, to: str = TOPIC, partition: int = 0
    ) -> Calls:
        part = packed(">i", partition) + compact(bytes(batch)) + b"\0"
        topic = compact(to) + b"\2" + part + b"\0"
        body = compact(transactional_id) + packed(">hi", -1, 30_000) + b"\2" + topic + b"\0"
        # From version 12 on a transactional Produce adds its partition itself (TV2).
        version = 12 if transactional_id is None or not self._added else 11
        reply = await self._client.ask(_PRODUCE, version, body, flexible=True)
        at = 1 + len(compact(to)) + 1 + 4
        _expect_no_error(int.from_bytes(reply[at : at + 2], "big"), "Produce")
        return self._client.calls

    async def _add_partitions(self) -> Calls:
        body = string(TRANSACTIONAL_ID) + packed(">qh", *self._producer)
        body += packed(">i", 1) + string(TOPIC) + packed(">ii", 1, 0)
        reply = await self._client.ask(_ADD_PARTITIONS, 0, body)
        _expect_no_error(int.from_bytes(reply[-2:], "big"), "AddPartitionsToTxn")
        self._added = True
        return self._client.calls

    async def _end_txn_tv1(self) -> Calls:
        body = string(TRANSACTIONAL_ID) + packed(">qh?", *self._producer, True)
        reply = await self._client.ask(_END_TXN, 1, body)
        _expect_no_error(int.from_bytes(reply[4:6], "big"), "EndTxn")
        self._added = False
        return self._client.calls

    async def _join_group(self) -> bytes:
        body = compact(f"{GROUP}-{self._group}") + packed(">ii", 300_000, 300_000)
        body += compact(self._member) + b"\0" + compact("consumer") + b"\3"
        body += compact("range") + b"\1\0" + compact("cooperative-sticky") + b"\1\0"
        return await self._client.ask(_JOIN, 9, body + b"\0\0", flexible=True)

    def _as_member(self) -> bytes:
        group = string(f"{GROUP}-{self._group}") + packed(">i", self._generation)
        return group + string(self._member) + packed(">h", -1)


def _record() -> Record:
    return Record(0, 1_700_000_000_000, None, bytes(100))


COUNTED: dict[str, Callable[[Requests], Awaitable[Calls]]] = {
    "Produce": Requests.produce,
    "Produce (TV2)": Requests.produce_in_txn,
    "Fetch": Requests.fetch,
    "Fetch (session of 200)": Requests.fetch_in_session,
    "EndTxn": Requests.end_txn,
    "EndTxn (TV1)": Requests.end_txn_tv1,
    "JoinGroup": Requests.join_group,
    "JoinGroup again": Requests.join_group_again,
    "SyncGroup": Requests.sync_group,
    "Heartbeat": Requests.heartbeat,
    "OffsetCommit": Requests.offset_commit,
    "AddPartitionsToTxn": Requests.add_partitions_to_txn,
    "InitProducerId": Requests.init_producer_id,
}
"""EndTxn is version 5, JoinGroup 9, Produce 12, Fetch 16, the others those of librdkafka."""


async def _count(repeats: int, metrics: bool) -> dict[str, Calls]:
    config: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
    if metrics:
        config["oncelog.metrics.address"] = "127.0.0.1:0"
    with tempfile.TemporaryDirectory() as folder:
        async with broker_in_loop(folder, config) as broker:
            client = CountingClient(broker.bootstrap_servers)
            try:
                requests = Requests(client)
                await requests.prepare()
                return {
                    name: await _smallest(ask, requests, repeats) for name, ask in COUNTED.items()
                }
            finally:
                client.close()


async def _count_replicated(repeats: int) -> Calls:
    # Imported here because the broker of a checkout that is compared may know no cluster.
    from oncelog.controller.topics import TopicToCreate
    from tests.support.members import members

    topic = TopicToCreate(TOPIC, assignment={0: (1, 2, 3)}, config={"min.insync.replicas": "2"})
    async with members(3) as cluster:
        await cluster[1].broker.controller.create_topics([topic])
        await cluster.agreed()
        client = CountingClient(cluster[1].broker.bootstrap_servers)
        try:
            return await _smallest(Requests.produce, Requests(client), repeats)
        finally:
            client.close()


def count_replicated(repeats: int = REPEATS) -> Calls:
    """Calls of one Produce with three replicas, in the leader and in both followers together.

    Each follower fetches the record, appends it and fetches again, which moves the high watermark.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_count_replicated(repeats))


async def _smallest(
    ask: Callable[[Requests], Awaitable[Calls]], requests: Requests, repeats: int
) -> Calls:
    for _ in range(WARM_UP):
        await ask(requests)
    seen = [await ask(requests) for _ in range(repeats)]
    return Calls(
        min(calls.until_reply for calls in seen),
        min(calls.total for calls in seen),
        min(calls.everywhere for calls in seen),
    )


def count(repeats: int = REPEATS, *, metrics: bool = False) -> dict[str, Calls]:
    """Python function calls of one request of each API in `COUNTED`; takes about two seconds.

    With `metrics` the broker has an address for Prometheus, so it times requests as well.
    Not for a thread in which a loop runs, nor under another profiler.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_count(repeats, metrics))


def main() -> int:
    """Print the table, or with ``--json`` the calls in all."""
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: calls.total for name, calls in count().items()}))
        return 0
    table = Table(title=f"Python function calls per request, Python {sys.version.split()[0]}")
    table.add_column("request")
    table.add_column("until its reply", justify="right")
    table.add_column("in all", justify="right")
    table.add_column("everywhere", justify="right")
    counted = count(metrics="--metrics" in sys.argv)
    for name, calls in (counted | {"Produce (three replicas)": count_replicated()}).items():
        table.add_row(name, str(calls.until_reply), str(calls.total), str(calls.everywhere))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
