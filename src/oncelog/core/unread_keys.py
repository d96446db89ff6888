"""The configuration keys that are accepted and shown, but that nothing reads so far.

Made by `python -m tests.support.configuration` from what the sources read.
"""

from typing import Final

__all__ = ["UNREAD_BROKER_KEYS", "UNREAD_TOPIC_KEYS"]

UNREAD_BROKER_KEYS: Final = frozenset(
    {
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "offsets.commit.timeout.ms",
        "replica.lag.time.max.ms",
        "transaction.partition.verification.enable",
        "transaction.version",
        "unclean.leader.election.enable",
    }
)

UNREAD_TOPIC_KEYS: Final = frozenset(
    {
        "unclean.leader.election.enable",
    }
)
