"""`min.insync.replicas` is the topic's, else the cluster's."""

import pytest

from oncelog.controller.cluster_config import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    cluster_values,
    election_rules,
    min_insync_replicas,
)
from oncelog.controller.elections import ElectionRules
from oncelog.controller.image import MetadataImage
from oncelog.controller.stored_configs import stored_config_problem
from oncelog.core.config import BrokerConfig


def test_a_topics_own_value_goes_before_the_clusters() -> None:
    cluster = {MIN_INSYNC_REPLICAS: "2"}
    assert min_insync_replicas({MIN_INSYNC_REPLICAS: "3"}, cluster) == 3
    assert min_insync_replicas({}, cluster) == 2
    assert min_insync_replicas({}, {}) == 1


def test_a_damaged_value_of_the_clusters_is_named() -> None:
    image = MetadataImage(cluster_id="c", cluster_config={MIN_INSYNC_REPLICAS: "many"})
    assert "in the configs of the cluster" in (stored_config_problem(image) or "")


@pytest.mark.parametrize(
    ("topic", "cluster", "rules"),
    [
        ({}, {}, ElectionRules(1, allows_unclean=False)),
        ({}, {MIN_INSYNC_REPLICAS: "2", UNCLEAN_ELECTION: "true"}, ElectionRules(2, True)),
        ({MIN_INSYNC_REPLICAS: "3"}, {MIN_INSYNC_REPLICAS: "2"}, ElectionRules(3, False)),
        ({UNCLEAN_ELECTION: "false"}, {UNCLEAN_ELECTION: "true"}, ElectionRules(1, False)),
    ],
)
def test_a_topics_own_values_decide_on_its_elections(
    topic: dict[str, str], cluster: dict[str, str], rules: ElectionRules
) -> None:
    assert election_rules(topic, cluster) == rules


def test_a_broker_brings_its_values_of_the_clusters_configs() -> None:
    config = BrokerConfig({MIN_INSYNC_REPLICAS: "2", UNCLEAN_ELECTION: "true"})
    assert cluster_values(config) == {MIN_INSYNC_REPLICAS: "2", UNCLEAN_ELECTION: "true"}
    plain = {MIN_INSYNC_REPLICAS: "1", UNCLEAN_ELECTION: "false"}
    assert cluster_values(BrokerConfig()) == plain
