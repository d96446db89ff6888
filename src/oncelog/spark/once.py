"""`write_once` writes all rows of a batch DataFrame in one Kafka transaction.

The protocol is that of a micro-batch (`oncelog.spark.batch_protocol`): this is batch 0 of a query
without any other. There is no checkpoint; only the marker shows whether the rows are written.
"""

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from oncelog.client.settings import hide_secrets
from oncelog.core.ids import TopicPartition
from oncelog.spark.batch_progress import describe_batch
from oncelog.spark.checks import check_columns, refuse_connect
from oncelog.spark.client_settings import settled
from oncelog.spark.errors import UsageError
from oncelog.spark.kafka_micro_batch import KafkaMicroBatch
from oncelog.spark.kafka_run import KafkaRun
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.sink_options import (
    BATCH_SIZE_BYTES,
    MARKER_TOPIC,
    TRANSACTION_TIMEOUT_MS,
    SinkOptions,
    check_options,
)
from oncelog.spark.writer import KafkaStart

__all__ = ["write_once"]

QUERY_ID: Final = "write_once"
"""In the marker in place of the id of a streaming query's checkpoint."""


def write_once(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    application_id: str,
    topic: str | None = None,
    topics: Sequence[str] | None = None,
    marker_topic: str = MARKER_TOPIC,
    write_attempts: int = 3,
    batch_size: int = BATCH_SIZE_BYTES,
    compression_type: str = "none",
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    progress_path: str | None = None,
    client_options: dict[str, Any] | None = None,
) -> bool:
    """Write a batch DataFrame to Kafka topics in one transaction: all rows, or none.

    `application_id` names this very write, such as ``"load-2026-11-21"``. Called again with it,
    after a crash or by mistake, the function writes nothing and returns False: only the name is
    compared, not the rows. Returns True when the rows were written by this call.

    The transaction has to end within `transaction_timeout_ms`, counted from the first row sent.
    Columns, and all other arguments, are those of `exactly_once`; its errors too.
    """
    refuse_connect(df)
    if df.isStreaming:
        raise UsageError("write_once takes a batch DataFrame; for a stream use exactly_once")
    check_columns(df, topic)
    options = SinkOptions(
        bootstrap_servers=bootstrap_servers,
        protocol=ProtocolOptions(
            application_id=application_id,
            marker_partition=TopicPartition(marker_topic, 0),
            commit_source_offsets=False,
            has_group_markers=False,
            write_attempts=write_attempts,
        ),
        topic=topic,
        topics=tuple(topics) if topics is not None else None,
        max_tasks=None,
        batch_size=batch_size,
        compression_type=compression_type,
        transaction_timeout_ms=transaction_timeout_ms,
        progress_path=progress_path,
        client_options=hide_secrets(client_options or {}),
    )
    options = settled(options)
    check_options(options)
    start = KafkaStart(df, options)
    start.examine(QUERY_ID, is_known=True)
    query = OnceQuery()
    run = start.run(query, df.sparkSession.sparkContext)
    try:
        run.process(OnceMicroBatch(run, df, 0))
    finally:
        query.end()
        run.close()
    return bool(describe_batch(run.progress.steps_of(0))["outcome"] == "committed")


class OnceQuery:
    """Represents the streaming query for a run."""

    query_id = QUERY_ID
    checkpoint = ""

    def __init__(self) -> None:
        self.run_id = str(uuid.uuid4())
        self._ended = threading.Event()

    def is_active(self) -> bool:
        """Until the write has ended."""
        return not self._ended.is_set()

    def wait(self) -> None:
        """Return when the write has ended."""
        self._ended.wait()

    def next_watermark_ms(self) -> None:
        """A batch DataFrame has none."""

    def end(self) -> None:
        """The write has ended."""
        self._ended.set()


class OnceMicroBatch(KafkaMicroBatch):
    """The one batch of `write_once`."""

    def __init__(self, run: KafkaRun, df: DataFrame, batch_id: int) -> None:
        super().__init__(run, df, batch_id)
        self._begun_at_s = time.time()

    def source_lines(self) -> tuple[str, ...]:
        """No lines: only the name identifies the batch."""
        return ("{}",)

    def planned_at_s(self) -> float | None:
        """Now: a marker of it cannot have expired since."""
        return self._begun_at_s

    def initial_offsets(self) -> None:
        """None: the sources do not report it."""

    def drain(self) -> None:
        """A batch has no state: what is committed need not be computed again."""
