"""What the coordinator's lines in the log say where there is much to say."""

from dataclasses import replace

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PARTITIONS_NAMED_COUNT_MAX
from oncelog.transaction.notices import resumed
from tests.unit.transaction.context import Context


@pytest.mark.parametrize(("more", "rest"), [(0, ""), (1, " and 1 more")])
def test_a_line_names_some_partitions_and_counts_the_others(more: int, rest: str) -> None:
    context = Context()
    context.init()
    count = PARTITIONS_NAMED_COUNT_MAX + more
    partitions = frozenset(TopicPartition("t", number) for number in range(count))
    text = resumed(replace(context.metadata, partitions=partitions)).text
    assert text.endswith(f", t-{PARTITIONS_NAMED_COUNT_MAX - 1}{rest}")
