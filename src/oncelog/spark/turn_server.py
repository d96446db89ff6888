"""Carries the requests of `oncelog.spark.turns` between the tasks and the driver.

The driver serves one attempt of one micro-batch on loopback, where the workers of a local Spark
are; a task has one connection. A message is a JSON object on a line:

- task -> driver: `{"token", "task"}` once, then `{"ask": target}`, `{"give": target, "records"}`,
  and at last `{"end": true}` or `{"failed": reason}`;
- driver -> task: `{"turn": target, "sequence"}`, `{"ended": true}`, or `{"failed": reason}`.

A connection that closes before the task's end fails the attempt, so a killed worker does not hold
the others up.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from oncelog.spark.errors import WriteStageError
from oncelog.spark.parties import TaskReport
from oncelog.spark.targets import Targets
from oncelog.spark.turns import Turn, Turns

__all__ = ["TurnClient", "TurnServer", "TurnsAddress"]

HOST: Final = "127.0.0.1"
HELLO_TIMEOUT_S: Final = 10.0
"""A connection that has not named its token and task in this time is closed."""

REASON_LENGTH_MAX: Final = 4000
"""Most characters of a reason in a message; a line is at most 64 KiB."""


@dataclass(frozen=True, slots=True)
class TurnsAddress:
    """Where the tasks of one attempt reach the driver. Picklable; `token` is a secret."""

    port: int
    token: str

    def __repr__(self) -> str:
        return f"TurnsAddress({self.port})"


class TurnServer:
    """Serves the turns of one attempt, on the event loop of its caller."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.address = TurnsAddress(0, secrets.token_hex(16))
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port of loopback; then `address` is valid."""
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        self.address = replace(self.address, port=port)

    async def close(self) -> None:
        """Refuse further tasks, and close the connections of those that are left."""
        self._fail("the attempt is over")
        if self._server is not None:
            self._server.close()
        left = [self._serving[each] for each in self._writers.values() if each in self._serving]
        for serving in left:
            serving.cancel()
        if left:
            await asyncio.wait(left)

    def check(self, reports: Iterable[TaskReport], targets: Targets) -> None:
        """Raise `WriteStageError` unless the reports have the records of all turns."""
        counts = self.turns.record_counts()
        written = {targets.topic_partition(target): count for target, count in counts.items()}
        reported = {report.topic_partition: report.record_count for report in reports}
        if written != reported:
            raise WriteStageError(f"the tasks reported {reported}, and wrote {written}")

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio reports the cancellation of a task that it made itself as an error.
        serving = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[writer] = serving
        serving.add_done_callback(partial(self._end, writer))

    def _end(self, writer: asyncio.StreamWriter, _serving: asyncio.Task[None]) -> None:
        # Not in the task: one that is cancelled before its first step runs none of its code.
        del self._serving[writer]
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await _received(reader)
            task = self._task_of(hello)
            if task is None:
                return
            self.turns.begin(task)
            self._writers[task] = writer
            while not reader.at_eof():
                message = await _received(reader)
                if message is None:
                    break
                self._handle(task, message)
        except WriteStageError as error:
            self._fail(str(error))
            _send(writer, {"failed": str(error)})
        except (OSError, TimeoutError, ValueError, RecursionError):
            # A task that does not keep to the protocol counts as lost.
            pass
        finally:
            if task is not None and self.turns.lost(task):
                self._fail(self.turns.failure or "")

    def _task_of(self, hello: Mapping[str, Any] | None) -> int | None:
        given, token = str((hello or {}).get("token")).encode(), self.address.token.encode()
        if hello is None or not hmac.compare_digest(given, token):
            return None
        return int(hello["task"])

    def _handle(self, task: int, message: Mapping[str, Any]) -> None:
        match message:
            case {"ask": int(target)}:
                self._tell(self.turns.ask(task, target))
            case {"give": int(target), "records": int(record_count)}:
                self._tell(self.turns.give_back(task, target, record_count))
            case {"end": True}:
                self.turns.end(task)
                _send(self._writers[task], {"ended": True})
            case {"failed": str(reason)}:
                self._fail(reason)
            case _:
                raise WriteStageError(f"task {task} sent an unknown message")

    def _tell(self, turn: Turn | None) -> None:
        if turn is not None:
            message = {"turn": turn.target, "sequence": turn.sequence}
            _send(self._writers[turn.task], message)

    def _fail(self, reason: str) -> None:
        """Give no more turns, and tell all tasks why."""
        self.turns.fail(reason)
        for writer in self._writers.values():
            _send(writer, {"failed": self.turns.failure})


class TurnClient:
    """A task's connection to the driver. Use `connected`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: WriteStageError | None = None

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: TurnsAddress, task: int) -> AsyncIterator["TurnClient"]:
        """Connect, begin the task, and end it when the block ends.

        An error in the block fails the attempt, with that error as the reason. Raises
        `WriteStageError` when the driver gives no turns (any more).
        """
        try:
            reader, writer = await asyncio.open_connection(HOST, address.port)
        except OSError as error:
            raise WriteStageError(f"task {task} cannot reach the driver: {error}") from error
        _send(writer, {"token": address.token, "task": task})
        client = cls(reader, writer)
        listening = asyncio.create_task(client._listen())
        try:
            yield client
            _send(writer, {"end": True})
            await client._ended
        except BaseException as error:
            _send(writer, {"failed": _reason(task, error)})
            with suppress(OSError):
                await writer.drain()
            raise
        finally:
            listening.cancel()
            writer.close()
            await asyncio.wait([listening])

    async def take(self, target: int) -> int:
        """Wait for the turn at a target partition; return the sequence of the first record."""
        if self._failure is not None:
            raise self._failure
        self._asked[target] = asyncio.get_running_loop().create_future()
        _send(self._writer, {"ask": target})
        return await self._asked[target]

    def give_back(self, target: int, record_count: int) -> None:
        """End the turn: so many records were acknowledged."""
        _send(self._writer, {"give": target, "records": record_count})

    async def _listen(self) -> None:
        reason = "the driver closed the connection"
        try:
            while (message := await _received(self._reader)) is not None:
                match message:
                    case {"turn": int(target), "sequence": int(sequence)}:
                        self._asked.pop(target).set_result(sequence)
                    case {"ended": True}:
                        self._ended.set_result(None)
                        return
                    case _:
                        reason = str(message.get("failed"))
                        break
        except (OSError, ValueError) as error:
            reason = f"{reason}: {error}"
        self._failure = WriteStageError(reason)
        waiting: list[asyncio.Future[Any]] = [*self._asked.values(), self._ended]
        for future in waiting:
            future.set_exception(self._failure)
            # A task that is still encoding does not wait for it.
            future.exception()


async def _received(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message, None at the end. Raises `ValueError` for another kind of line."""
    line = await reader.readline()
    if not line:
        return None
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")
    return message


def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Send a message, unless the connection is closed: asyncio warns of further writes there."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


def _reason(task: int, error: BaseException) -> str:
    """Name the error as a traceback does, by which `write_stage.failure_of` knows the user's."""
    text = f"task {task} failed: {type(error).__name__}: {error}"
    return text.replace("\n", " ")[:REASON_LENGTH_MAX]
