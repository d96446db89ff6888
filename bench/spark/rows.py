"""The table of rows about Spark: which job, and who does it. Knows nothing of PySpark."""

from dataclasses import dataclass

OURS, SPARK, NOOP = "oncelog", "spark", "noop"
STREAMS = {"streams-eos": "exactly_once_v2", "streams-alos": "at_least_once"}
"""Peers that are Kafka Streams, and their processing guarantee."""

INPUT_BYTES_S = 10_000_000
"""The input that 100 ms or 30 s of are put into one micro-batch, or between two commits."""

TUNED = {"kafka.batch.size": 512 * 1024, "kafka.linger.ms": 5}
"""What an expert gives Spark's sink: the size of our record batches, and time to fill them."""

DRIVER_MEMORY = "2g"
LATENCY_TRIGGERS_S = (0.0, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Sink:
    """Micro-batches of generated rows into a topic of four partitions, back to back."""

    rows: int
    value_bytes: int
    keyed: bool
    batches: int
    """With the first one, which is left out."""


@dataclass(frozen=True, slots=True)
class Source:
    """Micro-batches of a filled topic into no sink; the first one is left out.

    The last one ends at the end of the log, where Spark's consumer waits; so the rest is told too.
    """

    rows: int
    value_bytes: int
    batches: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a topic to another, with an interval's worth of input to a micro-batch or a commit.

    Where there is one micro-batch only, it counts; otherwise the first one is left out.
    """

    value_bytes: int
    interval_s: float
    batches: int

    @property
    def rows(self) -> int:
        """Of a micro-batch."""
        return int(INPUT_BYTES_S * self.interval_s / self.value_bytes)


@dataclass(frozen=True, slots=True)
class Small:
    """Micro-batches of a few records of a filled topic, back to back; each one's time is told."""

    rows: int
    value_bytes: int
    batches: int
    """With the first one, which is left out."""


@dataclass(frozen=True, slots=True)
class Visible:
    """A steady input through a whole pipeline: how long until each record is visible."""

    trigger_s: float


Job = Sink | Source | Copy | Small | Visible


@dataclass(frozen=True, slots=True)
class SparkRow:
    """One job and its peers, which take turns."""

    title: str
    job: Job
    peers: tuple[str, ...]


SINKS = (OURS, SPARK, NOOP)
SOURCES = (OURS, SPARK)
ENGINES = (OURS, SPARK, *STREAMS)
PIPELINES = (OURS, SPARK, "streams-eos")
MILLION = 1_000_000
KB_ROWS = 200_000

SPARK_ROWS = {
    "spark-sink-keyed-100": SparkRow(
        "sink, a million rows of 100 B with a key", Sink(MILLION, 100, True, 4), SINKS
    ),
    "spark-sink-100": SparkRow(
        "sink, a million rows of 100 B", Sink(MILLION, 100, False, 4), SINKS
    ),
    "spark-sink-keyed-1000": SparkRow(
        "sink, 200,000 rows of 1 KB with a key", Sink(KB_ROWS, 1000, True, 4), SINKS
    ),
    "spark-sink-1000": SparkRow("sink, 200,000 rows of 1 KB", Sink(KB_ROWS, 1000, False, 4), SINKS),
    "spark-batch-10": SparkRow("micro-batches of 10 rows, back to back", Small(10, 100, 41), SINKS),
    "spark-source-100": SparkRow(
        "source, a million rows of 100 B to a micro-batch", Source(MILLION, 100, 5), SOURCES
    ),
    "spark-source-1000": SparkRow(
        "source, 200,000 rows of 1 KB to a micro-batch", Source(KB_ROWS, 1000, 5), SOURCES
    ),
    "spark-copy-100-100ms": SparkRow(
        "copy 100 B, 100 ms of input to a commit", Copy(100, 0.1, 21), ENGINES
    ),
    "spark-copy-1000-100ms": SparkRow(
        "copy 1 KB, 100 ms of input to a commit", Copy(1000, 0.1, 21), ENGINES
    ),
    "spark-copy-100-30s": SparkRow(
        "copy 100 B, 30 s of input to a commit", Copy(100, 30, 1), ENGINES
    ),
    "spark-copy-1000-30s": SparkRow(
        "copy 1 KB, 30 s of input to a commit", Copy(1000, 30, 1), ENGINES
    ),
    **{
        f"spark-visible-{trigger_s:g}s": SparkRow(
            f"produced to visible, trigger every {trigger_s:g} s", Visible(trigger_s), PIPELINES
        )
        for trigger_s in LATENCY_TRIGGERS_S
    },
}
"""By key."""
