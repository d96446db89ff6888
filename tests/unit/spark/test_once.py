"""The one batch of `write_once`, beside the driver that commits it."""

import time
from typing import Any, cast

from oncelog.spark.marker import sources_hash
from oncelog.spark.offsets_log import cluster_ids, kafka_offsets
from oncelog.spark.once import OnceMicroBatch, OnceQuery


def batch() -> OnceMicroBatch:
    return OnceMicroBatch(cast(Any, OnceQuery()), cast(Any, None), 0)


def test_the_same_name_is_the_same_batch_in_every_process() -> None:
    one, other = batch(), batch()
    assert one.query_id == other.query_id
    assert sources_hash(one.source_lines()) == sources_hash(other.source_lines())


def test_it_commits_no_offsets_and_names_no_cluster() -> None:
    lines = batch().source_lines()
    assert kafka_offsets(lines) == {}
    assert cluster_ids(lines) == set()


def test_its_marker_cannot_have_expired_since_it_was_planned() -> None:
    planned_at_s = batch().planned_at_s()
    assert planned_at_s is not None
    assert time.time() - planned_at_s < 60


def test_what_is_committed_is_not_computed_again() -> None:
    batch().drain()


def test_the_query_ends_when_the_write_does() -> None:
    query = OnceQuery()
    assert query.is_active()
    query.end()
    query.wait()
    assert not query.is_active()
    assert OnceQuery().run_id != query.run_id
