"""The table of rows about the log, and about what a broker holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.stats import Figures
from bench.storage import compaction, restart
from bench.storage.cold import ColdFetch
from bench.storage.compaction import Compaction
from bench.storage.groups import ManyGroups
from bench.storage.ids import ManyIds
from bench.storage.partitions import ManyPartitions
from bench.storage.restart import RestartWithSegments, RestartWithTransactions
from bench.systems import System


@dataclass(frozen=True, slots=True)
class StorageRow:
    """What is done with a fresh broker that is not started yet."""

    title: str
    measure: Callable[[System], Figures]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that both systems get for it."""


STORAGE = {
    "restart-segments": StorageRow(
        "restart after a kill, 10,000 segments", RestartWithSegments(), restart.SETTINGS
    ),
    "restart-txns": StorageRow(
        "restart after a kill, 1,000,000 finished transactions",
        RestartWithTransactions(),
        restart.SETTINGS | restart.NEVER_COMPACTED,
    ),
    "partitions-2000": StorageRow("2,000 partitions on one broker", ManyPartitions(2_000)),
    "partitions-10000": StorageRow("10,000 partitions on one broker", ManyPartitions(10_000)),
    "groups-10000": StorageRow("10,000 groups of one member", ManyGroups(10_000)),
    "ids-10000": StorageRow("10,000 transactional ids, aborted by timeout", ManyIds(10_000)),
    "compaction": StorageRow(
        "compaction of 1 GB, 10,000 keys of 1000 B", Compaction(), compaction.SETTINGS
    ),
    "cold-fetch": StorageRow("consume 1 GB that is not in the page cache", ColdFetch()),
}
STORAGE_ROUNDS_MAX = 3
"""They are long, and their differences large."""
