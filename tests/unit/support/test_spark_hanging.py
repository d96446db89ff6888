"""What the crash table does about a transaction that Apache Kafka left hanging."""

import json

import pytest

from tests.spark import hanging
from tests.spark.hanging import abort_hanging

WHOLE = (("__consumer_offsets", 27), ("__oncelog_markers", 0), ("out", 0), ("out", 1))


class Tool:
    """Stands in for `oncelog transactions`."""

    def __init__(self, places: tuple[tuple[str, int], ...]) -> None:
        self.places = places
        self.aborted: list[tuple[str, ...]] = []

    def __call__(self, servers: str, command: str, *words: str) -> str:
        if command == "abort":
            self.aborted.append(words)
        return "\n".join(
            json.dumps(
                {
                    "topic": topic,
                    "partition": partition,
                    "producer_id": 6001,
                    "producer_epoch": 2,
                    "start_offset": 3,
                }
            )
            for topic, partition in self.places
        )


def test_it_is_aborted_in_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool(WHOLE)
    monkeypatch.setattr(hanging, "_transactions", tool)
    ended = ["__consumer_offsets-27", "__oncelog_markers-0", "out-0", "out-1"]
    assert abort_hanging("host:9092") == ended
    first = ("--topic", "__consumer_offsets", "--partition", "27", "--start-offset", "3")
    assert (len(tool.aborted), tool.aborted[0]) == (4, first)


def test_what_may_be_committed_in_part_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    for places in (WHOLE[:2], WHOLE[1:], WHOLE[2:]):
        tool = Tool(places)
        monkeypatch.setattr(hanging, "_transactions", tool)
        with pytest.raises(AssertionError, match="not one whole transaction"):
            abort_hanging("host:9092")
        assert tool.aborted == []


def test_where_nothing_hangs_nothing_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool(())
    monkeypatch.setattr(hanging, "_transactions", tool)
    assert abort_hanging("host:9092") == []
    assert tool.aborted == []
