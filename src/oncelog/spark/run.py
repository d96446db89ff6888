"""One run of a query: its connections, its protocol driver, its target partitions."""

import dataclasses
import os
import threading
import time
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from oncelog.client.admin import Admin
from oncelog.client.transactions import TransactionDriver
from oncelog.spark.background import BackgroundLoop
from oncelog.spark.checks import refuse_execution
from oncelog.spark.driver import BatchDriver, MicroBatch
from oncelog.spark.errors import UsageError
from oncelog.spark.progress import CrashPoint, Progress
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.tasks import Targets
from oncelog.spark.write_stage import slots_of

METADATA_AGE_S_MAX: Final = 30.0
"""Partition counts of the target topics are asked for again after this time."""


class Run:
    """One run of one query.

    Its connections, its driver, and what does not change between micro-batches.
    """

    def __init__(self, query: Any, context: Any, options: SinkOptions) -> None:
        self.query = query
        self.run_id = str(query.runId)
        self.query_id = str(query.id)
        self.context = context
        self.options = options
        execution = query._jsq.streamingQuery()  # noqa: SLF001 - Spark offers no public way to the checkpoint
        refuse_execution(execution)
        self.checkpoint = str(execution.resolvedCheckpointRoot())
        self.slots = slots_of(context)
        self.is_local = str(context.master).startswith("local")
        self.crash_point = _with_pids(options.crash_point, context)
        self._targets: Targets | None = None
        self._targets_at = 0.0
        self._loop = BackgroundLoop(f"oncelog-{options.driver.application_id}")
        self._admin, transaction = self._loop.call(self._connect())
        self._transaction = transaction
        self._driver = BatchDriver(
            options.driver,
            transaction,
            self._loop,
            Progress(options.progress_path),
            self.crash_point,
        )
        self._is_closed = False
        threading.Thread(target=self._close_at_end, name="oncelog-watch", daemon=True).start()

    def process(self, batch: MicroBatch) -> None:
        """Write one micro-batch, in one transaction."""
        self._driver.process(batch)

    def targets(self) -> Targets:
        """The partitions that may be written to, asked for anew when the answer is old."""
        now = time.monotonic()
        if self._targets is None or now - self._targets_at > METADATA_AGE_S_MAX:
            self._targets = self._loop.call(self._ask_targets())
            self._targets_at = now
        return self._targets

    def forget_targets(self) -> None:
        """A write failed: perhaps because topics changed."""
        self._targets = None

    def close(self) -> None:
        """Close the connections and the loop. No transaction is open between batches."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call(self._disconnect())
            self._loop.close()

    def _close_at_end(self) -> None:
        try:
            self.query._jsq.awaitTermination()  # noqa: SLF001 - the Python method would raise the query's failure here
        except (Py4JError, PySparkException, OSError):
            # The query failed, or the JVM is gone; its user is told elsewhere.
            pass
        finally:
            self.close()

    async def _connect(self) -> tuple[Admin, TransactionDriver]:
        options = self.options
        admin = Admin(options.bootstrap_servers, **options.client_options)
        transaction = TransactionDriver(
            options.bootstrap_servers,
            options.driver.application_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            **options.client_options,
        )
        return admin, transaction

    async def _disconnect(self) -> None:
        await self._transaction.close()
        await self._admin.close()

    async def _ask_targets(self) -> Targets:
        topics = await self._admin.list_topics()
        options = self.options
        wanted = (options.topic,) if options.topic is not None else options.topics
        if wanted is None:
            wanted = tuple(sorted(name for name, topic in topics.items() if not topic.is_internal))
        missing = [name for name in wanted if name not in topics]
        if missing:
            raise UsageError(
                f"topic {missing[0]!r} does not exist; create it before the query starts"
            )
        return Targets(wanted, tuple(len(topics[name].partitions) for name in wanted))


def _with_pids(point: CrashPoint | None, context: Any) -> CrashPoint | None:
    if point is None:
        return None
    process = getattr(context._gateway, "proc", None)  # noqa: SLF001 - the JVM has to die with us
    pids = (os.getpid(),) if process is None else (process.pid, os.getpid())
    return dataclasses.replace(point, pids=pids)
