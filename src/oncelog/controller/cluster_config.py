"""The configs that are one value of the cluster, never a broker's own file's.

Two brokers that differ in `min.insync.replicas` would acknowledge by different rules, and the one
would elect where the other's records are missing (KAFKA-16540).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CLUSTER_KEYS", "MIN_INSYNC_REPLICAS", "min_insync_replicas"]

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
CLUSTER_KEYS: Final = (MIN_INSYNC_REPLICAS,)


def min_insync_replicas(topic: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """Return the topic's own value, else the cluster's; 1 before a broker has registered."""
    return int(topic.get(MIN_INSYNC_REPLICAS) or cluster.get(MIN_INSYNC_REPLICAS, "1"))
