"""Counts what the group coordinators of a broker decide, as integers that metrics read on request.

Kafka's `GroupCoordinatorMetrics`. Like Kafka's its counts include decisions whose records could not
be written afterwards, except completed rebalances.
"""


class GroupMeter:
    """The counts of all shards of one broker, since its start; they outlive a shard."""

    __slots__ = (
        "classic_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        """Offsets, not requests: those of OffsetCommit and TxnOffsetCommit."""
        self.offset_expirations = 0
        self.offset_deletions = 0
        """Offsets that OffsetDelete removed."""
        self.classic_rebalances = 0
        """Assignments of a classic group's leader that are in the log."""
        self.consumer_rebalances = 0
        """Epochs that groups of the consumer protocol began."""
