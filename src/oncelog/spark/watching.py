"""Shows the progress of a running query in the terminal."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from oncelog.spark.batch_progress import last_progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Restarts", "shown", "watch"]

REFRESH_S: Final = 0.5


def watch(query: Any, console: "Console | None" = None) -> None:
    """Wait until the query ends, and show its progress: rows/s, batch time, transaction, lag.

    Shows nothing unless standard error is a terminal. Ctrl-C stops the query. Raises the exceptions
    of `query.awaitTermination`.
    """
    from rich.console import Console
    from rich.live import Live

    console = console or Console(stderr=True)
    restarts = Restarts()
    with contextlib.ExitStack() as stack:
        interruption = stack.enter_context(_interruption())
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(shown(None, 0), console=console, auto_refresh=False))
        is_ended = False
        while not is_ended:
            is_ended = bool(query.awaitTermination(REFRESH_S))
            progress = last_progress(query)
            if live is not None:
                live.update(shown(progress, restarts.count(progress)), refresh=True)
            if interruption.is_set() and not is_ended:
                query.stop()
                is_ended = True


@contextlib.contextmanager
def _interruption() -> Iterator[threading.Event]:
    """Set an event at Ctrl-C; an exception would interrupt a call to the JVM and break the gateway.

    Only the main thread receives signals; in other threads this does nothing.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def shown(progress: Mapping[str, Any] | None, restarts: int) -> "RenderableType":
    """Return the table for one progress."""
    from rich.table import Table
    from rich.text import Text

    if progress is None:
        return Text("waiting for the first micro-batch ...", style="dim")
    ours: Mapping[str, Any] = progress.get("oncelog", {})
    transaction = ours.get("transaction", {})
    lag = ours.get("lag")
    table = Table(box=None, pad_edge=False, header_style="dim")
    cells = {
        "batch": f"{progress['batchId']} {ours.get('outcome', '')}".strip(),
        "rows in/s": f"{progress.get('processedRowsPerSecond') or 0:,.0f}",
        "rows out": f"{ours.get('numOutputRows', 0):,}",
        "batch time": f"{progress['durationMs'].get('triggerExecution', 0):,} ms",
        "transaction": _transaction(transaction, ours.get("durationMs", {})),
        "lag": "-" if lag is None else f"{lag:,}",
        "restarts": str(restarts),
    }
    for name in cells:
        table.add_column(name, no_wrap=True)
    table.add_row(*cells.values())
    return table


def _transaction(transaction: Mapping[str, Any], durations: Mapping[str, int]) -> str:
    if transaction.get("producerId") is None:
        return "-"
    own_ms = durations.get("begin", 0) + durations.get("commit", 0)
    return f"{transaction['producerId']}/{transaction['producerEpoch']} in {own_ms:,} ms"


class Restarts:
    """Counts batches that started again, after a failed attempt or a crash between two commits."""

    def __init__(self) -> None:
        self._by_batch: dict[int, int] = {}

    def count(self, progress: Mapping[str, Any] | None) -> int:
        """Return the count including this progress; Spark may report a progress twice."""
        if progress is not None and "oncelog" in progress:
            ours = progress["oncelog"]
            again = max(ours["attempts"] - 1, 0) + (ours["outcome"] == "drained")
            if again:
                self._by_batch[progress["batchId"]] = again
        return sum(self._by_batch.values())
