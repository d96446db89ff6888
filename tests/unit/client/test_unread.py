"""Records that failed, and whose futures were not looked at before the producer's block ended."""

import asyncio
import logging
from typing import Any

import pytest

from oncelog import EmbeddedBroker, Producer, sync
from oncelog.client import AbortableError, FatalError, UndeliveredError
from oncelog.client.unread import BlockingDelivery, UnreadFailures
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CLIENT_UNREAD_FAILURES_MAX
from oncelog.protocol.api import ApiKey
from tests.unit.client.scripted_broker import ScriptedBroker

TOLD = "1 record was not written, and its future was not awaited: MESSAGE_TOO_LARGE"
ERROR = FatalError(ErrorCode.message_too_large, "t-0")


def refusing(count: int = 1) -> ScriptedBroker:
    broker = ScriptedBroker()
    broker.on(ApiKey.PRODUCE, *[ErrorCode.message_too_large] * count)
    return broker


async def test_a_block_raises_for_a_failed_record_that_was_not_awaited() -> None:
    broker = refusing()
    with pytest.raises(UndeliveredError) as caught:
        async with Producer("b:1", **broker.options()) as producer:
            producer.send("t", b"v", partition=0)
    assert str(caught.value).startswith(TOLD)
    assert caught.value.code is ErrorCode.message_too_large
    assert isinstance(caught.value.__cause__, FatalError)


async def test_several_are_counted() -> None:
    broker = refusing(2)

    async def send_two() -> None:
        async with Producer("b:1", **broker.options()) as producer:
            producer.send("t", b"v", partition=0)
            producer.send("t", b"v", partition=1)

    with pytest.raises(UndeliveredError, match="2 records were not written, and their futures"):
        await send_two()


async def test_who_awaited_the_record_is_not_told_again() -> None:
    broker = refusing(2)
    async with Producer("b:1", **broker.options()) as producer:
        with pytest.raises(FatalError):
            await producer.send("t", b"v", partition=0)
        found = await asyncio.gather(producer.send("t", b"w", partition=0), return_exceptions=True)
        assert isinstance(found[0], FatalError)
        await producer.send("t", b"x", partition=0)


async def test_an_error_of_the_block_itself_comes_first() -> None:
    broker = refusing()
    producer = Producer("b:1", **broker.options())

    async def fail() -> None:
        async with producer:
            producer.send("t", b"v", partition=0)
            await producer.flush()
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert producer._unread.take() is not None


async def test_a_transaction_tells_by_its_end() -> None:
    broker = refusing()
    async with Producer("b:1", transactional_id="x", **broker.options()) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()


def test_only_so_many_are_kept_and_read_ones_make_room() -> None:
    unread = UnreadFailures(is_transactional=False)
    futures = [BlockingDelivery() for _ in range(CLIENT_UNREAD_FAILURES_MAX)]
    for future in futures:
        unread.fail(future, ERROR)
    for future in futures[1:]:
        future.exception()
    last = BlockingDelivery()
    unread.fail(last, ERROR)
    told = unread.take()
    assert told is not None
    assert str(told).startswith("2 records were not written")
    assert unread.take() is None
    for _ in range(CLIENT_UNREAD_FAILURES_MAX + 5):
        unread.fail(BlockingDelivery(), ERROR)
    assert "100 or more records" in str(unread.take())


def test_the_blocking_producer_raises_and_logs_too(caplog: pytest.LogCaptureFixture) -> None:
    large: Any = bytes(3_000)
    with EmbeddedBroker(config={"message.max.bytes": 2_000}) as broker:
        servers = broker.bootstrap_servers
        with pytest.raises(UndeliveredError, match=TOLD), sync.Producer(servers) as producer:
            producer.send("t", large)
        with sync.Producer(servers) as producer:
            assert isinstance(producer.send("t", large).exception(), FatalError)
            assert producer.send("t", b"small").result().offset == 0
        notebook = sync.Producer(servers)
        notebook.start()
        notebook.send("t", large)
        notebook.flush()
        with caplog.at_level(logging.WARNING, "oncelog.client"):
            notebook.close()
        assert TOLD in caplog.text
