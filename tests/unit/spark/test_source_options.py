"""The source's options, offsets, limit and pin."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.source_options import (
    SourceOptions,
    from_json,
    limit_offsets,
    parse_offsets,
    read_pin,
    to_json,
    write_pin,
)

GOOD = {"bootstrapServers": "h:1", "subscribe": "a, b"}


def test_the_names_of_sparks_own_source_work_too() -> None:
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "SUBSCRIBE": "a,b"})
    assert options.bootstrap_servers == "h:1"
    assert options.topics == ("a", "b")
    assert options.fail_on_data_loss
    assert options.isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subscribe": ""}, "subscribe"),
        ({"subscribePattern": "a.*"}, "subscribe"),
        ({"bootstrapServers": ""}, "bootstrapServers"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"isolationLevel": "sloppy"}, "isolationLevel"),
        ({"startingOffsets": "group"}, "groupId"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SourceOptions.parse(GOOD | changes)


offsets_strategy = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)), st.integers(0, 1000)
)


@settings(deadline=None)
@given(offsets_strategy)
def test_offsets_survive_json_in_a_fixed_order(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets
    assert list(to_json(offsets)) == sorted(to_json(offsets))


@settings(deadline=None)
@given(offsets_strategy, st.integers(1, 500))
def test_a_limit_moves_every_waiting_partition_and_never_past_its_end(
    ends: dict[TopicPartition, int], rows_max: int
) -> None:
    begins = dict.fromkeys(ends, 0)
    limited = limit_offsets(begins, ends, rows_max)
    assert all((limited[tp] > 0) == (end > 0) and limited[tp] <= end for tp, end in ends.items())
    assert sum(limited.values()) <= max(rows_max, 0) + len(ends)


@pytest.mark.parametrize("text", ["soon", "[]", '{"a":5}', '{"a":{"0":"x"}}', '{"a":{"0":-3}}'])
def test_offsets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="offsets"):
        parse_offsets(text)


def test_the_first_answer_is_pinned_in_the_checkpoint(tmp_path: Path) -> None:
    options = SourceOptions.parse(GOOD | {"checkpointLocation": str(tmp_path / "new")})
    assert read_pin(options) is None
    pinned = write_pin(options, {"a": {"0": 5}})
    assert pinned == read_pin(options) == {"a": {"0": 5}}
    assert read_pin(SourceOptions.parse(GOOD)) is None
