"""Records find their partitions, or wait for them within the producer's memory."""

import asyncio

import pytest

from oncelog.client.errors import ClientError, FatalError
from oncelog.client.machines.producer import ProducerMachine, ProducerSettings
from oncelog.client.placement import Placement
from oncelog.client.sender import Token
from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import read_header
from oncelog.protocol.hashing import partition_for_key
from oncelog.protocol.record import Record, iter_records


class Context:
    """A placement over a machine that sends at once; topics are known when `counts` has them."""

    def __init__(self) -> None:
        settings = ProducerSettings(
            idempotent=False,
            transactional=False,
            retry_delay_ms=lambda _attempts: 10.0,
            batch_size=100,
        )
        self.machine = ProducerMachine(settings)
        self.counts: dict[str, int] = {}
        self.failed: list[tuple[Token, ClientError]] = []
        self.placement = Placement(self.machine, self.counts.get, self._note_failure)

    def _note_failure(self, token: Token, error: ClientError) -> None:
        self.failed.append((token, error))

    def put(
        self,
        value: bytes,
        *,
        topic: str = "t",
        key: bytes | None = None,
        partition: int | None = None,
        created_ms: float = 0,
    ) -> Token:
        token = Token(asyncio.get_running_loop().create_future(), 0)
        self.placement.put(topic, partition, Record(0, 0, key, value, ()), token, created_ms)
        return token

    def sent(self) -> dict[int, list[bytes | None]]:
        """The values that reached the machine, by partition."""
        self.machine.seal()
        found: dict[int, list[bytes | None]] = {}
        for send in self.machine.drain(0, lambda _tp: 1):
            for batch in send.batches:
                data = batch.payload
                assert data is not None
                values = [record.value for record in iter_records(data, 0, read_header(data))]
                found.setdefault(batch.topic_partition.partition, []).extend(values)
        return found


async def test_records_of_an_unknown_topic_wait_in_their_order() -> None:
    context = Context()
    for value in (b"1", b"2", b"3"):
        context.put(value)
    assert context.placement.topics() == {"t"}
    assert context.placement.held_size > 0
    assert context.sent() == {}
    context.counts["t"] = 1
    context.placement.place()
    assert context.sent() == {0: [b"1", b"2", b"3"]}
    assert context.placement.topics() == set()
    assert context.placement.held_size == 0


async def test_a_record_does_not_overtake_those_that_wait() -> None:
    context = Context()
    context.put(b"first")
    context.counts["t"] = 1
    context.put(b"second")
    context.placement.place()
    assert context.sent() == {0: [b"first", b"second"]}


async def test_a_given_partition_does_not_overtake_what_may_belong_to_it() -> None:
    """Found by simulation: records of one producer stood in the log in another order."""
    context = Context()
    context.put(b"first")
    context.put(b"second", partition=0)
    assert context.sent() == {}
    context.put(b"third", partition=1)
    context.counts["t"] = 1
    context.placement.place()
    assert context.sent() == {0: [b"first", b"second"]}
    context.counts["t"] = 2
    context.placement.place()
    assert context.sent() == {1: [b"third"]}


async def test_a_given_partition_waits_until_metadata_has_it() -> None:
    context = Context()
    context.put(b"v", partition=4)
    assert context.sent() == {}
    context.counts["t"] = 4
    context.put(b"behind", partition=4)
    context.put(b"at once", partition=3)
    context.placement.place()
    assert context.sent() == {3: [b"at once"]}
    context.counts["t"] = 5
    context.placement.place()
    assert context.sent() == {4: [b"v", b"behind"]}
    assert context.placement.held_size == 0


async def test_what_does_not_exist_fails_with_its_name() -> None:
    context = Context()
    context.counts["small"] = 3
    unknown, behind, silent = (
        context.put(b"v", topic=topic, partition=partition)
        for topic, partition in (("gone", None), ("small", 9), ("unasked", None))
    )
    context.placement.fail_unknown({"gone"}, -1)
    assert context.failed == []
    context.placement.fail_unknown({"gone"}, 0)
    assert [(token, error.message) for token, error in context.failed] == [
        (unknown, "topic gone does not exist"),
        (behind, "topic small has the partitions 0 to 2, not 9"),
    ]
    assert context.placement.topics() == {"unasked"}
    assert not silent.future.done()


async def test_a_key_decides_as_in_javas_default_partitioner() -> None:
    context = Context()
    context.counts["t"] = 3
    context.put(b"keyed", key=b"k")
    assert context.sent() == {partition_for_key(b"k", 3): [b"keyed"]}


async def test_without_a_key_batches_rotate_over_the_partitions() -> None:
    context = Context()
    context.counts["t"] = 3
    for _ in range(3):
        context.put(bytes(90))
    assert sorted(context.sent()) == [0, 1, 2]


async def test_only_what_waited_too_long_fails() -> None:
    context = Context()
    old, young = context.put(b"old", created_ms=1), context.put(b"young", created_ms=2)
    context.placement.fail_created_by(1, "topic is unknown")
    assert [token for token, _ in context.failed] == [old]
    assert "t: topic is unknown" in str(context.failed[0][1])
    context.placement.fail_all("producer closed")
    assert [token for token, _ in context.failed] == [old, young]
    assert context.placement.held_size == 0


async def test_a_rejected_topic_fails_its_own_records_alone() -> None:
    context = Context()
    here, there = context.put(b"a"), context.put(b"b", topic="other")
    error = FatalError(ErrorCode.topic_authorization_failed, "t")
    context.placement.reject_topic("t", error)
    assert context.failed == [(here, error)]
    assert context.placement.topics() == {"other"}
    assert not there.future.done()


async def test_records_of_one_partition_keep_their_order_however_it_was_chosen() -> None:
    context = Context()
    where = partition_for_key(b"k", 3)
    context.put(b"1", key=b"k")
    context.put(b"2", partition=where)
    context.put(b"3", key=b"k")
    assert context.sent() == {}
    context.counts["t"] = 3
    context.placement.place()
    assert context.sent() == {where: [b"1", b"2", b"3"]}
    assert context.placement.held_size == 0
    assert context.placement.topics() == set()


async def test_a_partitioner_that_fails_later_fails_its_record_alone() -> None:
    """The topic becomes known in the sender's task, which must go on."""

    def picky(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        if value == b"bad":
            raise RuntimeError("no idea")
        return 7 if value == b"far" else 1

    context = Context()
    context.placement = Placement(context.machine, context.counts.get, context._note_failure, picky)
    tokens = [context.put(value) for value in (b"bad", b"good", b"far")]
    context.counts["t"] = 2
    context.placement.place()
    assert [token for token, _ in context.failed] == [tokens[0], tokens[2]]
    assert [type(error).__name__ for _, error in context.failed] == ["AbortableError"] * 2
    assert "no idea" in context.failed[0][1].message
    assert "the partitioner chose 7: t has 0 to 1" in context.failed[1][1].message
    assert context.sent() == {1: [b"good"]}
    with pytest.raises(RuntimeError, match="no idea"):
        context.put(b"bad")


async def test_keys_may_be_ignored() -> None:
    context = Context()
    context.placement = Placement(
        context.machine, context.counts.get, context._note_failure, ignore_keys=True
    )
    context.counts["t"] = 4
    for number in range(4):
        context.put(b"v", key=b"%d" % number)
    assert len(context.sent()) == 1
