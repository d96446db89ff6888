"""Lists the source's options, and where they differ from those of Spark's Kafka source.

docs/spark.md shows this table; a test compares both. Kafka's configs, with the prefix ``kafka.``,
are in `oncelog.client.settings`.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["KAFKA_REFUSED", "OPTIONS", "SourceOption"]


@dataclass(frozen=True, slots=True)
class SourceOption:
    """One option: its default, and where it differs from Spark's option of the same name."""

    name: str
    default: str
    note: str


_SAME: Final = "as Spark's"
_EXCLUSIVE: Final = "as Spark's: one of `assign`, `subscribe` and `subscribePattern`"

OPTIONS: Final = (
    SourceOption("kafka.bootstrap.servers", "required", "or `bootstrapServers`"),
    SourceOption("assign", "", _EXCLUSIVE),
    SourceOption("subscribe", "", _EXCLUSIVE),
    SourceOption("subscribePattern", "", f"{_EXCLUSIVE}. The syntax is that of Python's `re`"),
    SourceOption(
        "startingOffsets",
        "`latest` in a stream, `earliest` in a batch",
        "as Spark's, and `group`: the offsets committed by the group `groupId`",
    ),
    SourceOption("endingOffsets", "`latest`", "as Spark's, in a batch only"),
    SourceOption("startingTimestamp", "", _SAME),
    SourceOption("endingTimestamp", "", "as Spark's, in a batch only"),
    SourceOption("startingOffsetsByTimestamp", "", _SAME),
    SourceOption("endingOffsetsByTimestamp", "", "as Spark's, in a batch only"),
    SourceOption("startingOffsetsByTimestampStrategy", "`error`", "as Spark's: `error`, `latest`"),
    SourceOption("maxOffsetsPerTrigger", "", _SAME),
    SourceOption("minOffsetsPerTrigger", "", "as Spark's; Trigger.AvailableNow does not wait"),
    SourceOption("maxTriggerDelay", "`15m`", _SAME),
    SourceOption("minPartitions", "", _SAME),
    SourceOption("maxRecordsPerPartition", "", _SAME),
    SourceOption("includeHeaders", "`false`", _SAME),
    SourceOption(
        "failOnDataLoss",
        "`true`",
        "as Spark's; also sees a topic that was deleted and made again, and another cluster",
    ),
    SourceOption("groupIdPrefix", "", "no effect: the source joins no group"),
    SourceOption(
        "kafka.group.id", "", "no group is joined; names the group of `startingOffsets=group`"
    ),
    SourceOption("groupId", "", "not Spark's: as `kafka.group.id`"),
    SourceOption(
        "kafka.isolation.level",
        "`read_committed`",
        "Spark's is `read_uncommitted`, which delivers records of transactions that were aborted",
    ),
    SourceOption("isolationLevel", "", "not Spark's: as `kafka.isolation.level`"),
    SourceOption("fetchOffset.numRetries", "`3`", _SAME),
    SourceOption("fetchOffset.retryIntervalMs", "`1000`", _SAME),
    SourceOption(
        "kafkaConsumer.pollTimeoutMs",
        "`120000`",
        "how long a task waits for brokers that do not answer; Spark's is `spark.network.timeout`",
    ),
    SourceOption(
        "checkpointLocation", "", "no effect: the beginning of a query stands in its first offset"
    ),
)

KAFKA_REFUSED: Final = {
    "auto.offset.reset": "set startingOffsets; where the query stands is Spark's to keep",
    "enable.auto.commit": "offsets are kept in the checkpoint",
    "interceptor.classes": "Java's interceptors cannot run here",
    "key.deserializer": "keys are bytes; deserialise them with DataFrame operations",
    "value.deserializer": "values are bytes; deserialise them with DataFrame operations",
}
"""Kafka's configs that Spark's source refuses too, and what to set instead."""
