"""Remembers failed records whose futures were not looked at, so that a block's end tells of them.

asyncio logs such a future only when it is collected, and `concurrent.futures` never does.
"""

from concurrent.futures import Future
from typing import Any

from oncelog.client.errors import ClientError, UndeliveredError
from oncelog.client.values import RecordMetadata
from oncelog.core.limits import CLIENT_UNREAD_FAILURES_MAX

__all__ = ["BlockingDelivery", "UnreadFailures"]


class BlockingDelivery(Future[RecordMetadata]):
    """What `oncelog.sync.Producer.send` returns; it knows whether it was asked how it went."""

    def __init__(self) -> None:
        super().__init__()
        self._log_traceback = True

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record's place. Raises why it was not written."""
        self._log_traceback = False
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return why it was not written; None if it was."""
        self._log_traceback = False
        return super().exception(timeout)


class UnreadFailures:
    """The first failed futures of a producer, asyncio's or `BlockingDelivery`.

    Not those of transactions, whose end raises the error as well.
    """

    def __init__(self, *, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self._failed: list[tuple[Any, ClientError]] = []

    def fail(self, future: Any, error: ClientError) -> None:
        """Have a future raise `error`, and remember it."""
        future.set_exception(error)
        if self._is_transactional:
            future.exception()  # asyncio need not complain about it
            return
        if len(self._failed) >= CLIENT_UNREAD_FAILURES_MAX:
            self._failed = self._unread()
        if len(self._failed) < CLIENT_UNREAD_FAILURES_MAX:
            self._failed.append((future, error))

    def take(self) -> UndeliveredError | None:
        """The error for what was not looked at until now, once; None if there is nothing."""
        unread, self._failed = self._unread(), []
        for future, _ in unread:
            future.exception()  # asyncio need not tell of it as well
        if not unread:
            return None
        count, (_, error) = len(unread), unread[0]
        text = "1 record was not written, and its future was not awaited"
        if count > 1:
            more = "or more " if count == CLIENT_UNREAD_FAILURES_MAX else ""
            text = f"{count} {more}records were not written, and their futures were not awaited"
        return UndeliveredError(error, f"{text}: {error}")

    def _unread(self) -> list[tuple[Any, ClientError]]:
        # asyncio's own note of whether the exception was retrieved.
        return [each for each in self._failed if each[0]._log_traceback]  # noqa: SLF001
