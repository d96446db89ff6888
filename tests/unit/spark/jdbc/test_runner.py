"""Calls that block: their results, and what becomes of one when the query is stopped."""

import threading

import pytest

from oncelog.spark.errors import StoppedError
from oncelog.spark.jdbc import runner as runner_module
from oncelog.spark.jdbc.runner import DirectRunner, StoppableRunner

TIMEOUT_S = 10


class Connection:
    """Its call waits until the connection is abandoned, or for an answer."""

    def __init__(self, *, is_deaf: bool = False) -> None:
        self.answered = threading.Event()
        self.closed = threading.Event()
        self.is_deaf = is_deaf
        self.closed_by = ""

    def abandon(self) -> None:
        if not self.is_deaf:
            self.answered.set()

    async def close(self) -> None:
        self.closed_by = threading.current_thread().name
        self.closed.set()

    async def statement(self) -> str:
        assert self.answered.wait(TIMEOUT_S)
        return "done"


async def fail() -> None:
    raise ValueError("no")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "PATIENCE_S", 0.01)


def test_calls_return_and_raise() -> None:
    connection = Connection()
    connection.answered.set()
    for runner in (DirectRunner(), StoppableRunner(connection, lambda: True)):
        assert runner.call(connection.statement()) == "done"
        with pytest.raises(ValueError, match="no"):
            runner.call(fail())
    assert not connection.closed.is_set()


def test_a_call_is_waited_for_until_the_query_is_stopped() -> None:
    connection = Connection()
    asked: list[None] = []

    def is_stopping() -> bool:
        asked.append(None)
        if len(asked) == 3:
            connection.answered.set()
        return False

    runner = StoppableRunner(connection, is_stopping)
    assert runner.call(connection.statement()) == "done"
    assert len(asked) >= 3
    runner.close()
    assert connection.closed_by == threading.current_thread().name


@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_call_of_a_stopped_query_is_left_behind_and_closes_its_connection(is_deaf: bool) -> None:
    """Its thread does: no other one may use the connection while the call runs."""
    connection = Connection(is_deaf=is_deaf)
    runner = StoppableRunner(connection, lambda: True)
    with pytest.raises(StoppedError, match="did not answer"):
        runner.call(connection.statement())
    assert not (is_deaf and connection.closed.is_set())
    with pytest.raises(StoppedError):
        runner.call(connection.statement())
    runner.close()
    connection.answered.set()
    assert connection.closed.wait(TIMEOUT_S)


def test_ctrl_c_leaves_a_call_behind_too() -> None:
    connection = Connection()

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StoppableRunner(connection, interrupted).call(connection.statement())
    assert connection.closed.wait(TIMEOUT_S)
