"""A progress line on standard error, if that is a terminal and the input is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Meter", "size_text"]

REFRESH_PER_S: Final = 8


class Meter:
    """Shows what `describe` says, and the seconds passed, until it is left.

    Silent when standard error is no terminal, and when the input is one, which shows what is
    typed.
    """

    def __init__(self, describe: Callable[[], str], *, is_input_terminal: bool) -> None:
        self._describe = describe
        self._shown = sys.stderr.isatty() and not is_input_terminal
        self._started_s = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> Meter:
        """Begin to show."""
        if self._shown:
            from rich.live import Live

            from oncelog.cli.output import console

            live = Live(
                console=console(stderr=True),
                get_renderable=self._line,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._stack.enter_context(live)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Erase the line."""
        self._stack.close()

    def _line(self) -> Text:
        from rich.text import Text

        return Text(f"{self._describe()}, {time.monotonic() - self._started_s:.0f} s", "cyan")


def size_text(byte_count: int) -> str:
    """Bytes for a person: 512 B, 1.5 MB."""
    size = float(byte_count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
