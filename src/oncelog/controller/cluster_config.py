"""The configs that are one value of the cluster, never a broker's own file's.

Two brokers that differ in `min.insync.replicas` would acknowledge by different rules, and the one
would elect where the other's records are missing (KAFKA-16540). The same holds for whether a
replica outside the ISR may lead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.controller.elections import ElectionRules
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import as_bool, format_value
from oncelog.core.config_keys import TOPIC_KEYS

__all__ = [
    "CLUSTER_KEYS",
    "MIN_INSYNC_REPLICAS",
    "UNCLEAN_ELECTION",
    "cluster_values",
    "election_rules",
    "min_insync_replicas",
]

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
CLUSTER_KEYS: Final = (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)


def cluster_values(broker: BrokerConfig) -> dict[str, str]:
    """Return a broker's values of the configs that are the cluster's."""
    allows_unclean = broker.topic_value({}, UNCLEAN_ELECTION)
    return {
        MIN_INSYNC_REPLICAS: str(broker.topic_int({}, MIN_INSYNC_REPLICAS)),
        UNCLEAN_ELECTION: format_value(allows_unclean) or "",
    }


def min_insync_replicas(topic: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """Return the topic's own value, else the cluster's; 1 before a broker has registered."""
    return int(topic.get(MIN_INSYNC_REPLICAS) or cluster.get(MIN_INSYNC_REPLICAS, "1"))


def election_rules(topic: Mapping[str, str], cluster: Mapping[str, str]) -> ElectionRules:
    """Return what a topic's configs, else the cluster's, say of elections."""
    text = topic.get(UNCLEAN_ELECTION) or cluster.get(UNCLEAN_ELECTION, "false")
    allows_unclean = as_bool(TOPIC_KEYS[UNCLEAN_ELECTION][0].parse(text))
    return ElectionRules(min_insync_replicas(topic, cluster), allows_unclean)


_REPLICATED: Final[Mapping[str, int]] = {"default.replication.factor": 3, MIN_INSYNC_REPLICAS: 2}


def replicated_defaults(brokers_count: int) -> dict[str, int]:
    """Return the configs of a cluster for tests and development, as far as it has brokers."""
    return {key: min(value, brokers_count) for key, value in _REPLICATED.items()}
