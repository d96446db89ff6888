"""What the coordinator's lines in the log say where there is much to say."""

from dataclasses import replace

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PARTITIONS_NAMED_COUNT_MAX
from oncelog.transaction.events import AddPartitions
from oncelog.transaction.notices import resumed, timed_out_together
from tests.unit.transaction.context import P0, Context


@pytest.mark.parametrize(("more", "rest"), [(0, ""), (1, " and 1 more")])
def test_a_line_names_some_partitions_and_counts_the_others(more: int, rest: str) -> None:
    context = Context()
    context.init()
    count = PARTITIONS_NAMED_COUNT_MAX + more
    partitions = frozenset(TopicPartition("t", number) for number in range(count))
    text = resumed(replace(context.metadata, partitions=partitions)).text
    assert text.endswith(f", t-{PARTITIONS_NAMED_COUNT_MAX - 1}{rest}")


def test_transactions_that_time_out_together_are_told_in_one_line() -> None:
    context = Context()
    count = PARTITIONS_NAMED_COUNT_MAX + 2
    for number in range(count):
        granted = context.init(id_=f"id-{number:02}", timeout_ms=1_000)
        ids = granted.producer_id, granted.producer_epoch
        context.send(AddPartitions(f"id-{number:02}", *ids, (P0,)))
    context.tick(1_001)
    told = context.notices
    named = ", ".join(f"id-{number:02}" for number in range(PARTITIONS_NAMED_COUNT_MAX))
    assert timed_out_together(told) == (
        f"{count} transactions aborted and fenced; cause: their transaction timeouts;"
        f" transactional ids: {named} and 2 more"
    )
    assert timed_out_together(told[:1]) == told[0].text
