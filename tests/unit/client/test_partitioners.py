"""Partitioners: Kafka's by name, and those of the user's own."""

from __future__ import annotations

import pytest

from oncelog.client.partitioners import RoundRobin, find_partitioner


def always_zero(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
    return 0


def test_round_robin_turns_by_topic_whatever_the_key() -> None:
    turn = RoundRobin()
    assert [turn("a", b"same", None, 3) for _ in range(4)] == [0, 1, 2, 0]
    assert turn("b", b"same", None, 3) == 0


def test_kafkas_name_a_function_and_a_path_are_found() -> None:
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert isinstance(find_partitioner(name), RoundRobin)
    assert isinstance(find_partitioner("RoundRobinPartitioner"), RoundRobin)
    assert find_partitioner(always_zero) is always_zero
    assert find_partitioner("operator:index") is not None
    assert find_partitioner(None) is None
    assert find_partitioner("") is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("com.example.MyPartitioner", "is no partitioner here: give a function"),
        ("no_such_module:f", "cannot be loaded"),
        ("operator:no_such_function", "cannot be loaded"),
    ],
)
def test_what_cannot_be_had_is_refused(given: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        find_partitioner(given)
