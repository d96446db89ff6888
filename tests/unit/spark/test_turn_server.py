"""Tasks and the driver of one attempt, over real sockets on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError, WriteStageError
from oncelog.spark.parties import TaskReport
from oncelog.spark.targets import Targets
from oncelog.spark.turn_server import TurnClient, TurnsAddress, TurnServer
from oncelog.spark.write_stage import failure_of
from tests.support.logged import said_by

pytestmark = pytest.mark.timeout(10)

TARGETS = Targets(("out",), (4,))


@asynccontextmanager
async def serving() -> AsyncIterator[TurnServer]:
    server = TurnServer()
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def lose(server: TurnServer, task: int) -> None:
    """A task that takes a turn and dies."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
    for message in ({"token": server.address.token, "task": task}, {"ask": 0}):
        writer.write(json.dumps(message).encode() + b"\n")
    await reader.readline()
    writer.close()


async def test_tasks_take_turns_and_their_records_are_checked() -> None:
    async with serving() as server:
        async with (
            TurnClient.connected(server.address, 0) as first,
            TurnClient.connected(server.address, 1) as second,
        ):
            assert await first.take(2) == 0
            waiting = asyncio.create_task(second.take(2))
            assert await second.take(3) == 0
            second.give_back(3, 1)
            assert not waiting.done()
            first.give_back(2, 10)
            assert await waiting == 10
            second.give_back(2, 5)
        reports = [
            TaskReport(0, TopicPartition("out", 2), 15, 0, 14),
            TaskReport(1, TopicPartition("out", 3), 1, 0, 0),
        ]
        server.check(reports, TARGETS)
        with pytest.raises(WriteStageError, match="the tasks reported"):
            server.check(reports[:1], TARGETS)


async def wait_for(server: TurnServer, task: int, failing: Coroutine[Any, Any, None]) -> None:
    """A task that asks for a turn after another one has failed."""
    async with TurnClient.connected(server.address, task) as client:
        await failing
        await client.take(0)


async def test_a_killed_task_fails_those_that_wait_for_it() -> None:
    async with serving() as server:
        with pytest.raises(WriteStageError, match="task 0 was lost while it wrote"):
            await wait_for(server, 1, lose(server, 0))
        with pytest.raises(WriteStageError, match="task 0 was lost"):
            server.check([], TARGETS)


async def wait_for_two(server: TurnServer, failures: list[BaseException | int]) -> None:
    """A task that waits for two turns when another one fails the attempt."""
    async with (
        TurnClient.connected(server.address, 1) as holder,
        TurnClient.connected(server.address, 2) as client,
    ):
        for target in (1, 2):
            await holder.take(target)
        waiting = [asyncio.create_task(client.take(target)) for target in (1, 2)]
        await asyncio.sleep(0)
        await lose(server, 0)
        failures += await asyncio.gather(*waiting, return_exceptions=True)


async def test_all_turns_that_a_task_waits_for_fail_with_the_attempt() -> None:
    failures: list[BaseException | int] = []
    async with serving() as server:
        with pytest.raises(WriteStageError, match="task 0 was lost"):
            await wait_for_two(server, failures)
    assert [type(failure) for failure in failures] == [WriteStageError] * 2


async def wait_while_another_begins(server: TurnServer, task: int) -> None:
    """A task that waits for a turn while a second attempt of it begins."""
    async with (
        TurnClient.connected(server.address, 1) as holder,
        TurnClient.connected(server.address, task) as client,
    ):
        await holder.take(0)
        waiting = asyncio.create_task(client.take(0))
        await holder.take(1)
        with suppress(WriteStageError):
            async with TurnClient.connected(server.address, task) as second:
                await second.take(2)
        await waiting


async def test_a_second_attempt_of_a_task_fails_the_first_one_that_waits() -> None:
    async with serving() as server:
        with pytest.raises(WriteStageError, match="task 0 began a second time"):
            await wait_while_another_begins(server, 0)


async def test_many_tasks_that_are_killed_say_nothing_of_sockets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stage that is stopped loses its tasks one after the other; each fails the attempt again."""
    async with serving() as server:
        for task in range(10):
            await lose(server, task)
    assert "socket" not in caplog.text


async def err(server: TurnServer, task: int) -> None:
    """A task that meets a bad row in its turn."""
    with suppress(UsageError):
        async with TurnClient.connected(server.address, task) as client:
            await client.take(0)
            raise UsageError("a row's topic is null")


async def test_a_users_mistake_is_the_reason_of_every_task() -> None:
    async with serving() as server:
        with pytest.raises(WriteStageError) as told:
            await wait_for(server, 1, err(server, 0))
        found = failure_of(RuntimeError(f"oncelog.spark.errors.WriteStageError: {told.value}"))
        assert isinstance(found, UsageError)
        assert str(found) == "a row's topic is null"


async def test_a_task_of_another_attempt_gets_no_turn() -> None:
    async with serving() as server:
        async with TurnClient.connected(server.address, 0):
            pass
        with pytest.raises(WriteStageError, match="began a second time"):
            async with TurnClient.connected(server.address, 0) as again:
                await again.take(0)


async def test_a_stranger_is_not_served_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    hostile = (b"no json\n", b"[]\n", b'{"token": 7}\n', b'{"token": "\xc3\xa9"}\n', b"x" * 100_000)
    async with serving() as server:
        stranger = TurnsAddress(server.address.port, "guess")
        with pytest.raises(WriteStageError, match="the driver closed the connection"):
            async with TurnClient.connected(stranger, 0) as client:
                await client.take(0)
        for line in (*hostile, b"[" * 50_000 + b"\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
            writer.write(line)
            assert await reader.read() == b""
            writer.close()
        async with TurnClient.connected(server.address, 0) as client:
            assert await client.take(0) == 0
            client.give_back(0, 1)
        assert server.turns.failure is None
        assert said_by(caplog) == []
        assert "exception" not in caplog.text.lower()
        assert server.address.token not in repr(server.address)


async def test_a_message_that_no_task_sends_fails_the_attempt() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        for message in ({"token": server.address.token, "task": 0}, {"give": "x"}):
            writer.write(json.dumps(message).encode() + b"\n")
        assert b"unknown message" in await reader.readline()
        writer.close()
        assert server.turns.failure == "task 0 sent an unknown message"


class Cancelling(TurnServer):
    """Cancels each service before its first step."""

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super()._connected(reader, writer)
        self._serving[writer].cancel()


async def test_a_connection_is_closed_whose_service_is_cancelled_before_it_begins() -> None:
    server = Cancelling()
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
    assert await reader.read() == b""
    writer.close()
    await server.close()


async def test_an_end_of_the_attempt_closes_every_tasks_connection() -> None:
    server = TurnServer()
    await server.start()
    readers = []
    for task in (0, 1):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        for message in ({"token": server.address.token, "task": task}, {"ask": task}):
            writer.write(json.dumps(message).encode() + b"\n")
        await reader.readline()
        readers.append((reader, writer))
    await server.close()
    for reader, writer in readers:
        await reader.read()
        assert reader.at_eof()
        writer.close()


def test_connections_that_are_left_end_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """One is of a task that is stopped, the other of a stranger who says nothing."""

    async def leave() -> None:
        server = TurnServer()
        await server.start()
        begun = [await asyncio.open_connection("127.0.0.1", server.address.port) for _ in range(2)]
        for message in ({"token": server.address.token, "task": 0}, {"ask": 0}):
            begun[0][1].write(json.dumps(message).encode() + b"\n")
        await begun[0][0].readline()
        assert len(asyncio.all_tasks()) == 3
        await server.close()
        # The stranger may be a task that has not named itself yet, and is told the reason.
        assert len(asyncio.all_tasks()) == 2
        for _, writer in begun:
            writer.close()

    asyncio.run(leave())
    assert "xception" not in caplog.text


async def test_a_driver_that_is_gone_ends_its_tasks() -> None:
    server = TurnServer()
    await server.start()
    with pytest.raises(WriteStageError, match="the attempt is over"):
        await wait_for(server, 0, server.close())
    with pytest.raises(WriteStageError, match="task 1 cannot reach the driver"):
        async with TurnClient.connected(server.address, 1):
            pass
