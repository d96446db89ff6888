"""One run of a query: its connections, its protocol driver, its target partitions."""

import time
from typing import Any, Final

from oncelog.client.admin import Admin
from oncelog.client.transactions import TransactionDriver
from oncelog.spark.background import BackgroundLoop
from oncelog.spark.driver import BatchDriver, MicroBatch
from oncelog.spark.errors import UsageError
from oncelog.spark.query import QueryRun
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.tasks import Targets
from oncelog.spark.write_stage import slots_of

METADATA_AGE_S_MAX: Final = 30.0
"""Partition counts of the target topics are asked for again after this time."""


class Run(QueryRun):
    """One run of one query.

    Its connections, its driver, and what does not change between micro-batches.
    """

    def __init__(self, query: Any, context: Any, options: SinkOptions) -> None:
        super().__init__(query, context, options.crash_point, options.progress_path)
        self.options = options
        self.slots = slots_of(context)
        self._targets: Targets | None = None
        self._targets_at = 0.0
        self._loop = BackgroundLoop(f"oncelog-{options.driver.application_id}")
        self._admin, transaction = self._loop.call(self._connect())
        self._transaction = transaction
        self._driver = BatchDriver(
            options.driver,
            transaction,
            self._loop,
            self.progress,
            self.crash_point,
        )
        self._is_closed = False
        self.call_at_end(self.close)

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
