"""Sends a small micro-batch from the driver alone.

A write stage takes longer than a small micro-batch: workers, a shuffle, a barrier. A few rows are
collected instead, and sent over a connection that stays open from batch to batch.
"""

from collections.abc import Iterable

from oncelog.client.errors import ClientError
from oncelog.client.producer import Producer
from oncelog.spark.encoder import Blob
from oncelog.spark.errors import WriteStageError
from oncelog.spark.parties import ProducerIdentity, Runner, TaskReport
from oncelog.spark.progress import ProgressLog
from oncelog.spark.sending import Deliveries
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.targets import Targets

__all__ = ["DirectWriter"]

DRIVER_TASK = -1
"""The driver's task number in a report."""


class DirectWriter:
    """Sends from the driver. Keeps its producer while it writes without an error."""

    def __init__(self, options: SinkOptions, runner: Runner) -> None:
        self._options = options
        self._runner = runner
        self._progress = ProgressLog(options.progress_path)
        self._producer: Producer | None = None

    def write(
        self,
        identity: ProducerIdentity,
        batch_id: int,
        targets: Targets,
        blobs: Iterable[list[Blob]],
    ) -> list[TaskReport]:
        """Send blobs, in their order; return their offsets once all are acknowledged.

        Raises `WriteStageError` when the cluster refused a blob.
        """
        try:
            producer = self._runner.call(self._attached(identity))
            self._progress.step("mid_task", batch_id, task=DRIVER_TASK)
            deliveries = Deliveries(producer, targets)
            for some in blobs:
                self._runner.call(deliveries.send(some))
            return self._runner.call(deliveries.finish(DRIVER_TASK))
        except BaseException as error:
            self.close()
            if isinstance(error, ClientError):
                raise WriteStageError(f"the driver could not write: {error}") from error
            raise

    def close(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            self._runner.call(producer.close())

    async def _attached(self, identity: ProducerIdentity) -> Producer:
        if self._producer is None:
            options = self._options
            self._producer = Producer.attach(
                options.bootstrap_servers,
                transactional_id=options.protocol.application_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                **options.producer_options(),
            )
            await self._producer.start()
        else:
            self._producer.reattach(identity.producer_id, identity.producer_epoch)
        return self._producer
