"""What an administrator does about a transaction that Apache Kafka left without its markers.

A broker of Kafka 4.3 that is killed while it ends a transaction, and started again, may take
partitions that have no leader yet for deleted ones: `KRaftMetadataCache.getPartitionLeaderEndpoint`
returns nothing for them, and `TransactionMarkerChannelManager` leaves out their markers and
completes the transaction. Then no partition of it ever ends: a query that waits for the offsets of
its group fails (docs/spark.md, "A transaction that hangs").
"""

import json
import subprocess
from typing import Any

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.spark.sink_options import MARKER_TOPIC
from tests.support.broker import OURS

COMMAND_TIMEOUT_S = 60


def abort_hanging(bootstrap_servers: str) -> list[str]:
    """Abort a transaction that hangs in all its partitions; returns these, none if nothing hangs.

    Raises `AssertionError` if part of it may have been committed: then an abort would tear it.
    """
    now = ("--max-transaction-timeout", "0")
    lines = _transactions(bootstrap_servers, "find-hanging", "--json", *now).splitlines()
    hanging: list[dict[str, Any]] = [json.loads(line) for line in lines]
    producers = {(one["producer_id"], one["producer_epoch"]) for one in hanging}
    topics = {one["topic"] for one in hanging}
    is_whole = len(producers) == 1 and {CONSUMER_OFFSETS_TOPIC, MARKER_TOPIC} < topics
    assert is_whole or not hanging, f"not one whole transaction: {hanging}"
    for one in hanging:
        place = ("--topic", one["topic"], "--partition", str(one["partition"]))
        start = ("--start-offset", str(one["start_offset"]))
        _transactions(bootstrap_servers, "abort", *place, *start)
    return [f"{one['topic']}-{one['partition']}" for one in hanging]


def _transactions(bootstrap_servers: str, *words: str) -> str:
    done = subprocess.run(
        [*OURS, "transactions", *words, "--bootstrap-server", bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
