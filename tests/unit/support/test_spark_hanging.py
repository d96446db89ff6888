"""What the crash table does about a transaction that Apache Kafka left hanging."""

import json

import pytest

from tests.spark import hanging
from tests.spark.hanging import end_hanging

WHOLE = (("__consumer_offsets", 27), ("__oncelog_markers", 0), ("out", 0), ("out", 1))


class Tool:
    """Stands in for `oncelog transactions`."""

    def __init__(self, places: tuple[tuple[str, int], ...]) -> None:
        self.places = places
        self.producer_ids = [6001]
        self.aborted: list[tuple[str, ...]] = []

    def __call__(self, servers: str, command: str, *words: str) -> str:
        if command == "abort":
            self.aborted.append(words)
        return "\n".join(
            json.dumps(
                {
                    "topic": topic,
                    "partition": partition,
                    "producer_id": producer_id,
                    "producer_epoch": 2,
                    "start_offset": 3,
                }
            )
            for topic, partition in self.places
            for producer_id in self.producer_ids
        )


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Nothing of what hangs is committed elsewhere (`tests/interop/test_hanging.py` has that)."""
    tool = Tool(WHOLE)
    monkeypatch.setattr(hanging, "_transactions", tool)

    async def nowhere(*_: object) -> bool:
        return False

    monkeypatch.setattr(hanging, "_is_committed_in_part", nowhere)
    return tool


def test_it_is_aborted_in_all_its_partitions(tool: Tool) -> None:
    ended = ["__consumer_offsets-27", "__oncelog_markers-0", "out-0", "out-1"]
    assert end_hanging("host:9092", ["out"]) == [f"{place} aborted" for place in ended]
    first = ("--topic", "__consumer_offsets", "--partition", "27", "--start-offset", "3")
    assert (len(tool.aborted), tool.aborted[0]) == (4, first)


def test_two_transactions_are_a_finding(tool: Tool) -> None:
    tool.producer_ids = [6001, 6002]
    with pytest.raises(AssertionError, match="not one transaction"):
        end_hanging("host:9092", ["out"])
    assert tool.aborted == []


def test_where_nothing_hangs_nothing_is_aborted(tool: Tool) -> None:
    tool.places = ()
    assert end_hanging("host:9092", ["out"]) == []
    assert tool.aborted == []
