"""`min.insync.replicas` is the topic's, else the cluster's."""

from oncelog.controller.cluster_config import MIN_INSYNC_REPLICAS, min_insync_replicas
from oncelog.controller.image import MetadataImage
from oncelog.controller.stored_configs import stored_config_problem


def test_a_topics_own_value_goes_before_the_clusters() -> None:
    cluster = {MIN_INSYNC_REPLICAS: "2"}
    assert min_insync_replicas({MIN_INSYNC_REPLICAS: "3"}, cluster) == 3
    assert min_insync_replicas({}, cluster) == 2
    assert min_insync_replicas({}, {}) == 1


def test_a_damaged_value_of_the_clusters_is_named() -> None:
    image = MetadataImage(cluster_id="c", cluster_config={MIN_INSYNC_REPLICAS: "many"})
    assert "in the configs of the cluster" in (stored_config_problem(image) or "")
