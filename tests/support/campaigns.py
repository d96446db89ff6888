"""What long campaigns of tests share: work in several processes, a bar, an end in order."""

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["INTERRUPTED", "bar", "in_processes", "interruptible"]

Request = TypeVar("Request")
Done = TypeVar("Done")

INTERRUPTED = 130
"""The exit code of a campaign that was ended before it was done."""


def in_processes(
    work: Callable[[Request], Done], requests: Iterable[Request], jobs: int
) -> Generator[Done, None, None]:
    """What `work` makes of each request, in their order, from as many processes.

    When the caller goes away what has been begun is finished and the rest left.
    """
    pool = ProcessPoolExecutor(jobs, initializer=_leave_signals_to_the_parent)
    try:
        yield from pool.map(work, requests)
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_signals_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as SIGINT does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def bar(console: Console, what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar; call what it gives with how many are done by now, and how many of them failed."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, failed=0)
        yield lambda done, failed: progress.update(task, completed=done, failed=failed)
