"""One application of the Spark model: what outlives its drivers, and what the judge has to know."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_protocol import RENEWAL_S, BatchProtocol
from oncelog.spark.errors import FailClosedError
from oncelog.spark.marker import Marker
from tests.simulation.spark_checkpoint import Checkpoint
from tests.simulation.spark_stage import StageOptions

__all__ = ["TAKE_OVER_STEPS", "Application", "Refusal"]

TAKE_OVER_STEPS: Final = ("wal_written", "after_init", "tasks_done", "ending")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A driver failed closed."""

    reason: str
    query_id: str
    batch_id: int
    marker: Marker | None
    who: str


@dataclass
class Application:
    """One application id: what outlives its drivers, and what the judge has to know."""

    application_id: str
    partitions: tuple[TopicPartition, ...]
    stage: StageOptions
    transaction_version_max: int
    crash: float
    """Probability of a death at, or soon after, each step."""
    lose_checkpoint: float
    lose_answer: float
    take_over_step: str
    """One of `TAKE_OVER_STEPS`, or "": no rival comes there."""
    sources_settled: Callable[[], bool]
    take_over: Callable[[], bool]
    """Start a rival, unless enough of them live; whether it did."""
    marker_partition: TopicPartition | None = None
    has_expiry: bool = False
    """Whether the group's offsets and the transactional id expire in no time."""
    checkpoint: Checkpoint = field(init=False)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    """All there ever were, by query."""
    refusals: list[Refusal] = field(default_factory=list)
    finished: dict[tuple[str, int], str] = field(default_factory=dict)
    """(query, batch) -> the first driver whose `process` returned for it."""
    rows: Counter[str] = field(default_factory=Counter)
    """Crash rows, by name."""
    reached: Counter[str] = field(default_factory=Counter)
    complaints: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checkpoint = self.new_checkpoint()

    def now_s(self) -> float:
        """The drivers' clock: it is due to renew a marker every second, or every six."""
        return self.stage.world.now_s * RENEWAL_S / (6.0 if self.marker_partition is None else 1.0)

    def new_checkpoint(self) -> Checkpoint:
        """An empty one, of a new query."""
        made = Checkpoint(f"query-{len(self.checkpoints)}", dict.fromkeys(self.partitions, 0))
        self.checkpoints[made.query_id] = made
        return made

    def complain(self, what: str, text: str) -> None:
        """Something is not as it has to be."""
        self.complaints.append((what, text))

    def count(self, name: str) -> None:
        """Something was reached."""
        self.reached[name] += 1

    def choose_checkpoint(self, rng: random.Random) -> Checkpoint:
        """The one in use, unless it is lost now."""
        if not self.stage.is_healed() and rng.random() < self.lose_checkpoint:
            self.count("checkpoint lost")
            return self.new_checkpoint()
        return self.checkpoint

    def finish(self, checkpoint: Checkpoint, batch_id: int, who: str) -> None:
        """A batch is done, as its driver believes."""
        self.checkpoint = checkpoint
        self.finished.setdefault((checkpoint.query_id, batch_id), who)

    def refused(
        self,
        error: FailClosedError,
        checkpoint: Checkpoint,
        batch_id: int,
        driver: BatchProtocol,
        who: str,
    ) -> None:
        """A driver failed closed. Its operator finds the checkpoint that the marker names."""
        marker = driver.marker
        self.refusals.append(Refusal(error.reason, checkpoint.query_id, batch_id, marker, who))
        if marker is not None and marker.batch.query_id in self.checkpoints:
            self.checkpoint = self.checkpoints[marker.batch.query_id]
