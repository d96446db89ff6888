"""Partitioners for records without a partition: `partitioner.class`.

By default the key's hash decides (murmur2, as in Java's clients), and records without a key use one
partition until its batch is full. Kafka's round robin is available by its name; any function may
replace them.
"""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Final

__all__ = ["Partitioner", "RoundRobin", "find_partitioner"]

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition."""

_ROUND_ROBIN: Final = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class RoundRobin:
    """Assigns records to the partitions in turn, whatever their keys.

    Source: `RoundRobinPartitioner`.
    """

    def __init__(self) -> None:
        self._sent_count: Counter[str] = Counter()

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int
    ) -> int:
        """The next partition of the topic."""
        partition = self._sent_count[topic] % partition_count
        self._sent_count[topic] += 1
        return partition


def find_partitioner(given: str | Partitioner | None) -> Partitioner | None:
    """Return a partitioner by function, Kafka's name or ``module:function``; None by default.

    Raises `ValueError` for anything else.
    """
    if not isinstance(given, str):
        return given
    if not given:
        return None
    if given in (_ROUND_ROBIN, _ROUND_ROBIN.rpartition(".")[2]):
        return RoundRobin()
    module, colon, name = given.partition(":")
    if not colon:
        raise ValueError(
            f"partitioner.class {given!r} is no partitioner here: give a function, "
            f"'module:function', or {_ROUND_ROBIN}"
        )
    try:
        found: Partitioner = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"partitioner.class {given!r} cannot be loaded: {error}") from None
    return found
