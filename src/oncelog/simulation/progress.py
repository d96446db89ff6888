"""Shows the progress of a campaign of many runs: `oncelog simulate --runs N`.

On a terminal it updates one picture: a bar, runs per minute, findings by signature, the coverage of
each area's catalogue, the last seeds. Elsewhere it prints lines: new findings at once, the count at
intervals. Rich is imported only for a terminal.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from oncelog.simulation.coverage import AREAS, REACHED_COUNT_MIN, Coverage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

__all__ = ["Display", "FoundLike", "RunLike"]

LINE_EVERY_S: Final = 10.0
"""Without a terminal the count is printed at this interval."""
SEEDS_SHOWN_COUNT: Final = 8
SIGNATURES_SHOWN_COUNT: Final = 12
_BAR_WIDTH: Final = 32


class FoundLike(Protocol):
    """One finding of a run: its signature, an example, and "" or the known defect that it is."""

    @property
    def signature(self) -> str: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def known_as(self) -> str: ...  # noqa: D102


class RunLike(Protocol):
    """The part of a run that the progress needs. `coverage` is `Coverage.to_json` of it."""

    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def profile(self) -> str: ...  # noqa: D102
    @property
    def simulated_s(self) -> float: ...  # noqa: D102
    @property
    def findings(self) -> Sequence[FoundLike]: ...  # noqa: D102
    @property
    def coverage(self) -> str: ...  # noqa: D102
    @property
    def failed(self) -> bool: ...  # noqa: D102


class Display:
    """Shows a campaign of `run_count` runs while it is entered; call `update` after each run."""

    def __init__(
        self,
        run_count: int,
        *,
        out: TextIO | None = None,
        console: Console | None = None,
        now_s: Callable[[], float] = time.monotonic,
        minimum: int = REACHED_COUNT_MIN,
    ) -> None:
        self.run_count = run_count
        self.done_count = 0
        self.failed_count = 0
        self.simulated_s = 0.0
        self.coverage = Coverage()
        self._out = sys.stderr if out is None else out
        self._console = console
        self._now_s = now_s
        self._minimum = minimum
        self._began_s = now_s()
        self._said_s = self._began_s
        self._counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], tuple[int, str]] = {}
        self._last: deque[tuple[int, str, bool]] = deque(maxlen=SEEDS_SHOWN_COUNT)
        self._live: Live | None = None

    @property
    def runs_per_s(self) -> float:
        """Return the runs per second since the start."""
        return self.done_count / max(self._now_s() - self._began_s, 1e-9)

    def __enter__(self) -> Display:
        """Start the display."""
        self._began_s = self._said_s = self._now_s()
        if self._console is not None or self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            console = self._console or Console(file=self._out, highlight=False, markup=False)
            self._live = Live(
                console=console, get_renderable=self.picture, refresh_per_second=4, transient=False
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last picture, or print the last count."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        else:
            self._say(self.line())

    def update(self, result: RunLike) -> None:
        """Add a run that is done."""
        self.done_count += 1
        self.failed_count += result.failed
        self.simulated_s += result.simulated_s
        self.coverage.merge(Coverage.from_json(result.coverage))
        self._last.append((result.seed, result.profile, result.failed))
        for found in result.findings:
            key = (found.signature, found.known_as)
            self._counts[key] += 1
            if key not in self._examples:
                self._examples[key] = (result.seed, found.detail)
                if self._live is None and not found.known_as:
                    self._say(f"found {found.signature} with seed {result.seed}: {found.detail}")
        now_s = self._now_s()
        if self._live is None and now_s - self._said_s >= LINE_EVERY_S:
            self._said_s = now_s
            self._say(self.line())

    # --- plain lines

    def line(self) -> str:
        """Return the campaign's progress as one line."""
        unknown = sum(not known for _, known in self._counts)
        known = len(self._counts) - unknown
        missing = len(self.coverage.unreached(self._minimum))
        last = f", last seed {self._last[-1][0]}" if self._last else ""
        return (
            f"{self.done_count:,} of {self.run_count:,} runs, {self.runs_per_s * 60:.0f} a minute, "
            f"{self.failed_count:,} failed, signatures: {unknown} unknown, {known} known, "
            f"coverage: {missing} names below {self._minimum}{last}"
        )

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    # --- the picture

    def picture(self) -> RenderableType:
        """Return the whole picture, for a terminal."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [self._bar()]
        if self._counts:
            parts.append(self._found())
        parts += [self._covered(), self._seeds(), Text()]
        return Group(*parts)

    def _bar(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        seconds = self._now_s() - self._began_s
        left_s = (self.run_count - self.done_count) / self.runs_per_s if self.done_count else 0.0
        ratio = self.simulated_s / max(seconds, 1e-9)
        table = Table.grid(padding=(0, 2))
        table.add_row(
            ProgressBar(total=max(self.run_count, 1), completed=self.done_count, width=_BAR_WIDTH),
            f"{self.done_count:,}/{self.run_count:,} runs",
            f"{self.runs_per_s:.2f}/s",
            f"{ratio:.0f} times real time",
            f"{_clock(seconds)} passed, {_clock(left_s)} left",
        )
        return table

    def _found(self) -> Table:
        """Return the findings by signature; unknown ones first, then the most frequent."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        table.add_column("found", overflow="fold")
        table.add_column("runs", justify="right")
        table.add_column("first seed", justify="right")
        table.add_column("example", overflow="ellipsis", no_wrap=True)
        order = sorted(self._counts, key=lambda key: (bool(key[1]), -self._counts[key], key))
        for key in order[:SIGNATURES_SHOWN_COUNT]:
            signature, known = key
            seed, example = self._examples[key]
            name = f"{signature} (known: {known})" if known else signature
            style = "dim" if known else "bold red"
            table.add_row(name, f"{self._counts[key]:,}", str(seed), example, style=style)
        if len(order) > SIGNATURES_SHOWN_COUNT:
            table.add_row(f"and {len(order) - SIGNATURES_SHOWN_COUNT} more", "", "", "")
        return table

    def _covered(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for area in AREAS:
            reached, count = self.coverage.reached(area, self._minimum)
            missing = [
                name.partition("/")[2]
                for name in self.coverage.unreached(self._minimum)
                if name.startswith(f"{area}/")
            ]
            bar = ProgressBar(total=max(count, 1), completed=reached, width=_BAR_WIDTH)
            text = f"missing {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"
            table.add_row(area, bar, f"{reached}/{count}", text if missing else "all reached")
        return table

    def _seeds(self) -> RenderableType:
        from rich.text import Text

        text = Text("last seeds ")
        for seed, profile, failed in reversed(self._last):
            text.append(f" {seed}", "bold red" if failed else "green")
            text.append(f" {profile}{' failed' if failed else ''}", "dim")
        return text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
