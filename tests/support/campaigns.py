"""What long campaigns of tests share: work in several processes, a bar, an end in order."""

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["INTERRUPTED", "Shown", "Tally", "carry_out", "in_processes", "interruptible"]

Request = TypeVar("Request")
Done = TypeVar("Done")
Part = TypeVar("Part", contravariant=True)

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


class Tally(Protocol[Part]):
    """What one call of a campaign comes to."""

    @property
    def count(self) -> int:
        """How much has been judged."""

    @property
    def failed_count(self) -> int:
        """How much of it is wrong."""

    def add(self, part: Part) -> None:
        """Take in the next part."""


class Shown(NamedTuple):
    """What a campaign shows, and where: a bar, and parts that are wrong."""

    console: Console
    what: str
    total: int


def carry_out(
    parts: Iterator[Part],
    tally: Tally[Part],
    shown: Shown,
    tell: Callable[[Part, Console], None],
    keep: Callable[[], object] | None,
    *,
    keep_every: int = 1,
) -> int:
    """Add up parts as they come and keep what there is: now and then, at the end, interrupted.

    Returns the exit code.
    """
    kept_count = 0

    def keep_from(count: int) -> None:
        nonlocal kept_count
        if keep is not None and tally.count - kept_count >= count:
            keep()
            kept_count = tally.count

    try:
        with interruptible(), _bar(shown) as show:
            show(tally.count, tally.failed_count)
            for part in parts:
                tally.add(part)
                tell(part, shown.console)
                show(tally.count, tally.failed_count)
                keep_from(keep_every)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        keep_from(1)
        shown.console.print(f"{tally.count} {shown.what}, {tally.failed_count} failed")
    return 1 if tally.failed_count else 0


@contextmanager
def _bar(shown: Shown) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, console=shown.console) as progress:
        task = progress.add_task(shown.what, total=shown.total, failed=0)
        yield lambda done, failed: progress.update(task, completed=done, failed=failed)
