"""Which partition each row goes to."""

import numpy as np
import pyarrow as pa
import pytest

from oncelog.core.ids import TopicPartition
from oncelog.protocol.hashing import partition_for_key
from oncelog.spark.errors import UsageError
from oncelog.spark.targets import Targets

TARGETS = Targets(("a", "b"), (3, 4))


def choose(
    topics: list[str | None],
    partitions: list[int | None],
    keys: list[bytes | None],
    spread: list[int] | None = None,
) -> list[TopicPartition]:
    numbers = TARGETS.choose(
        pa.array(topics, pa.string()),
        pa.array(partitions, pa.int32()),
        pa.array(keys, pa.binary()),
        np.array(spread or [0] * len(topics), np.int64),
    )
    return [TARGETS.topic_partition(number) for number in numbers.tolist()]


def test_a_given_partition_wins_then_the_key_then_the_hash_of_the_row() -> None:
    chosen = choose(
        ["a", "b", "b", "a"], [2, None, None, None], [b"k", b"k", None, None], [0, 0, 7, -1]
    )
    assert chosen == [
        TopicPartition("a", 2),
        TopicPartition("b", partition_for_key(b"k", 4)),
        TopicPartition("b", 3),
        TopicPartition("a", 2),
    ]


def test_an_empty_key_is_a_key() -> None:
    assert choose(["a"], [None], [b""], [1]) == [TopicPartition("a", partition_for_key(b"", 3))]


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [
        (None, None, "topic is null"),
        ("c", None, "'c' does not exist"),
        ("a", 3, "partition 3"),
        ("a", -1, "-1"),
    ],
)
def test_rows_that_have_no_place_are_refused(
    topic: str | None, partition: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose(["a", topic], [None, partition], [b"k", b"k"])


def test_every_partition_has_one_number() -> None:
    numbers = [TARGETS.topic_partition(number) for number in range(TARGETS.total)]
    assert len(set(numbers)) == 7
    assert numbers[3] == TopicPartition("b", 0)
    with pytest.raises(UsageError):
        TARGETS.topic_partition(7)
