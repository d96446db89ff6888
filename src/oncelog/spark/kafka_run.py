"""One run of a query into Kafka: its connections, its protocol, its target partitions."""

import dataclasses
import logging
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from oncelog.client.admin import Admin
from oncelog.client.errors import ClientError
from oncelog.client.transactions import TransactionDriver
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import StoppableLoop
from oncelog.spark.batch_protocol import BatchProtocol
from oncelog.spark.collected_rows import CollectedRows
from oncelog.spark.direct import DirectWriter
from oncelog.spark.errors import PipelineError, StoppedError, TooLargeError
from oncelog.spark.marker import Marker
from oncelog.spark.parties import MicroBatch
from oncelog.spark.preflight import explained
from oncelog.spark.progress import ProgressLog
from oncelog.spark.query import Query, QueryRun, exists
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.target_lookup import TargetLookup
from oncelog.spark.targets import Targets
from oncelog.spark.turn_server import TurnServer

RENEWAL_LOOK_S: Final = 60.0
"""How often an idle query checks its marker; `BatchProtocol.renew` decides when it is due."""

METADATA_AGE_S_MAX: Final = 30.0
"""Partition counts of the target topics are requested again after this time."""

T = TypeVar("T")

log = logging.getLogger("oncelog.spark")


class KafkaRun(QueryRun):
    """One run of one query: its connections, its protocol, and state across micro-batches."""

    def __init__(
        self, query: Query, context: Any, options: SinkOptions, cluster_id: str | None
    ) -> None:
        super().__init__(query, context, options.progress_path)
        self.options = options
        self.has_barriers = has_barrier_stages(context)
        self._targets: Targets | None = None
        self._targets_at = 0.0
        self._loop = StoppableLoop(f"oncelog-{options.protocol.application_id}")
        self._admin, self._transaction = self.call(self._connect())
        self._lookup = TargetLookup(options, self._admin)
        self._protocol = BatchProtocol(
            dataclasses.replace(options.protocol, cluster_id=cluster_id),
            self._transaction,
            self,
            self.progress,
        )
        self.direct = DirectWriter(options, self)
        self.driver_rows = CollectedRows(options.max_driver_rows)
        self._read_to: Mapping[TopicPartition, int] | None = None
        self._written_count = 0
        self._closing = threading.Event()
        # The connections are closed only when no call uses them.
        self._in_use = threading.Lock()
        self.call_at_end(self.close)
        threading.Thread(target=self._renew, name="oncelog-renew", daemon=True).start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the run's loop; it ends soon after the query is stopped."""
        return self._loop.call(coroutine, self.is_stopping)

    @contextmanager
    def serving_turns(self) -> Iterator[TurnServer]:
        """Serve the turns of one attempt on the run's loop."""
        server = TurnServer()
        try:
            self._loop.call(server.start())
            yield server
        finally:
            self._loop.call(server.close())

    def prepare(self) -> None:
        """Take over the application id before the first batch.

        Raises an error in one sentence if the cluster refuses.
        """
        with self._in_use:
            if self._closing.is_set():
                return
            try:
                is_planned = exists(self.context, f"{self.checkpoint}/offsets/0")
                self._protocol.prepare(None if is_planned else self.query_id)
            except StoppedError:
                # The query has ended already, and raises the reason.
                return
            except ClientError as error:
                raise explained(error, self.options) from error

    def process(self, batch: MicroBatch) -> None:
        """Write one micro-batch, in one transaction."""
        try:
            self._protocol.process(batch)
        except ClientError as error:
            raise explained(error, self.options) from error

    def _renew(self) -> None:
        """Renew the marker of an idle query, on a thread, as Spark calls nothing then.

        It continues after any failure: the next check, or the next batch, starts again.
        """
        while not self._closing.wait(RENEWAL_LOOK_S):
            with self._in_use:
                if self._closing.is_set():
                    return
                try:
                    self._protocol.renew()
                except (ClientError, PipelineError) as error:
                    log.warning("the batch marker could not be renewed: %s", error)

    def targets(self) -> Targets:
        """The partitions that may be written to, requested again when the reply is old."""
        now = time.monotonic()
        if self._targets is None or now - self._targets_at > METADATA_AGE_S_MAX:
            self._targets = self.call(self._lookup.ask())
            self._targets_at = now
        return self._targets

    def forget_targets(self) -> None:
        """Request partition counts again after a failed write: topics may have changed."""
        self._targets = None

    def limit_size(self, error: TooLargeError) -> None:
        """Halve the batches for a topic that refused one, and request its limit again.

        Raises `UsageError` if the batch held one record, which no split makes smaller.
        """
        self._lookup.limit_size(error)
        self.forget_targets()

    def wrote(self, read_to: Mapping[TopicPartition, int], record_count: int) -> None:
        """Record that a micro-batch up to these offsets was written."""
        self._read_to = read_to
        self._written_count = record_count

    def records_since(self, read_to: Mapping[TopicPartition, int]) -> int | None:
        """Estimate the rows of a micro-batch that reads up to these offsets.

        None when unknown: before the first one, and for new partitions.
        """
        if self._read_to is None or self._read_to.keys() != read_to.keys():
            return None
        read = sum(offset - self._read_to[place] for place, offset in read_to.items())
        return max(read, self._written_count)

    def close(self) -> None:
        """Close the connections and the loop. No transaction is open between batches."""
        with self._in_use:
            if self._closing.is_set():
                return
            self._closing.set()
            self.direct.close()
            self._loop.call(self._disconnect())
            self._loop.close()

    async def _connect(self) -> tuple[Admin, TransactionDriver]:
        options = self.options
        admin = Admin(options.bootstrap_servers, **options.running_options())
        return admin, _transaction_driver(options)

    async def _disconnect(self) -> None:
        await self._transaction.close()
        await self._admin.close()


def has_barrier_stages(context: Any) -> bool:
    """Whether Spark runs barrier stages: it refuses them under dynamic allocation."""
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false")
    return str(dynamic).lower() != "true"


def committed_marker(options: SinkOptions) -> Marker | None:
    """The marker of the last committed batch, before a run begins.

    It is final: other drivers are fenced, and their open transactions aborted. Raises an error in
    one sentence if the cluster refuses.
    """
    loop = StoppableLoop("oncelog-marker")

    async def connect() -> TransactionDriver:
        return _transaction_driver(options)

    transaction = loop.call(connect())
    try:
        protocol = BatchProtocol(options.protocol, transaction, loop, ProgressLog(None))
        protocol.prepare()
        return protocol.marker
    except ClientError as error:
        raise explained(error, options) from error
    finally:
        loop.call(transaction.close())
        loop.close()


def _transaction_driver(options: SinkOptions) -> TransactionDriver:
    return TransactionDriver(
        options.bootstrap_servers,
        options.protocol.application_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
        **options.running_options(),
    )
