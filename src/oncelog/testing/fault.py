"""`ArmedFault`: one fault, from when it is set until it has occurred."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["ArmedFault"]

WAIT_TIMEOUT_S = 10.0


class ArmedFault:
    """A fault that is set. A test may wait for it, or cancel it."""

    def __init__(self, description: str, nth: int, times: int, cancel: Callable[[], None]) -> None:
        if nth < 1 or times < 1:
            raise ValueError("nth and times count from 1")
        self.description = description
        self._skips_count = nth - 1
        self._left_count = times
        self._hits_count = 0
        self._over = threading.Event()
        self._cancel = cancel

    def __repr__(self) -> str:
        return f"<ArmedFault: {self.description}, struck {self._hits_count} times>"

    @property
    def hits_count(self) -> int:
        """How often it has occurred so far."""
        return self._hits_count

    def wait(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until it has occurred as often as requested, and its effect has ended.

        A kill ends when the broker serves again, if it is restarted. Raises `TimeoutError` with a
        sentence that names the fault.
        """
        if not self._over.wait(timeout_s):
            raise TimeoutError(f"within {timeout_s} s this has not happened: {self.description}")

    def cancel(self) -> None:
        """Remove the fault; this does nothing once it is over."""
        self._cancel()

    # For the broker's side, in its loop.

    def strikes(self) -> bool:
        """Count one matching request or write; return whether the fault occurs now."""
        if self._left_count == 0:
            return False
        if self._skips_count > 0:
            self._skips_count -= 1
            return False
        self._left_count -= 1
        self._hits_count += 1
        return True

    @property
    def is_spent(self) -> bool:
        """Whether it will not occur again."""
        return self._left_count == 0

    def finish(self) -> None:
        """End its effect: `wait` returns."""
        self._over.set()
