"""What a reader decides, simulated alone: sound as it is, and slips of it are seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from oncelog.client.machines.decided import DecidedValue
from oncelog.client.machines.failures import ReadFailures
from oncelog.client.machines.fetch_room import FetchRoom
from oncelog.client.machines.fetching import Aborted, Visible, read_records, visible_batches
from oncelog.client.machines.metadata import MetadataCache
from oncelog.client.machines.nearest import NearestReplicas
from oncelog.client.machines.positions import NO_EPOCH, Diverged, Leadership, Position, compare
from oncelog.client.machines.unknown import UnknownTopics
from oncelog.client.values import TopicDescription
from oncelog.simulation.components import reader_places, reader_records, reader_waits
from oncelog.simulation.components.readers import readers

Part = Callable[[random.Random], Iterator[str]]


def found(part: Part, runs: int) -> list[str]:
    """What the first run shows that shows anything."""
    for seed in range(runs):
        texts = list(part(random.Random(f"{seed}:readers")))
        if texts:
            return texts
    return []


def test_readers_as_they_are_pass() -> None:
    assert found(readers, 30) == []


# --- records


def _drop_no_aborted(
    buffer: Any, position: int, aborted: Iterable[Aborted] | None, **rest: bool
) -> Visible:
    return visible_batches(buffer, position, None, **rest)


def _drop_what_comes_after_an_abort(
    buffer: Any, position: int, aborted: Iterable[Aborted] | None, **rest: bool
) -> Visible:
    """A producer counts as aborted from the start of the answer on."""
    early = None if aborted is None else [Aborted(0, each.producer_id) for each in aborted]
    return visible_batches(buffer, position, early, **rest)


def _check_no_crc(
    buffer: Any, position: int, aborted: Iterable[Aborted] | None, **_: bool
) -> Visible:
    return visible_batches(buffer, position, aborted, check_crcs=False)


def _go_on_at_the_last_offset(
    buffer: Any, position: int, aborted: Iterable[Aborted] | None, **rest: bool
) -> Visible:
    visible = visible_batches(buffer, position, aborted, **rest)
    return visible._replace(next_offset=max(position, visible.next_offset - 1))


@pytest.mark.parametrize(
    "slip",
    [
        _drop_no_aborted,
        _drop_what_comes_after_an_abort,
        _check_no_crc,
        _go_on_at_the_last_offset,
    ],
)
def test_a_slip_about_what_is_visible_is_seen(
    slip: Callable[..., Visible], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_records, "visible_batches", slip)
    assert found(reader_records.reads, 20)


def test_records_before_the_position_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_records, "read_records", lambda fetched, _: read_records(fetched, 0))
    assert found(reader_records.reads, 20)


def test_a_value_that_is_decided_too_soon_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty(DecidedValue):
        def read(self, buffer: Any, position: int) -> int:
            reached = super().read(buffer, position)
            self.value = next(iter(self._open.values()), self.value)
            return reached

    monkeypatch.setattr(reader_records, "DecidedValue", Hasty)
    assert found(reader_records.reads, 20)


# --- leaders


def _never_ask(position: Position, now: Leadership) -> Position:
    return Position(position.offset, position.epoch, now)


def _believe(
    position: Position, epoch: int, end_offset: int, now: Leadership | None
) -> Position | Diverged:
    del epoch, end_offset
    return position._replace(validated=now)


def _cut_too_much(
    position: Position, epoch: int, end_offset: int, now: Leadership | None
) -> Position | Diverged:
    cut = compare(position, epoch, end_offset, now)
    return Diverged(0, cut.epoch) if isinstance(cut, Diverged) and cut.epoch != NO_EPOCH else cut


@pytest.mark.parametrize(
    ("name", "slip"), [("under", _never_ask), ("compare", _believe), ("compare", _cut_too_much)]
)
def test_a_position_in_a_log_that_was_cut_is_seen(
    name: str, slip: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_places, name, slip)
    assert found(reader_places.positions, 20)


class TakesOlderLeaders(MetadataCache):
    def update_topic(self, topic: TopicDescription) -> bool:
        self.topics.pop(topic.name, None)
        return super().update_topic(topic)


class StaysMissing(MetadataCache):
    def update_topic(self, topic: TopicDescription) -> bool:
        was_missing = topic.name in self.missing
        is_news = super().update_topic(topic)
        self.missing.update({topic.name} if was_missing else ())
        return is_news


@pytest.mark.parametrize("slip", [TakesOlderLeaders, StaysMissing])
def test_a_slip_of_the_metadata_is_seen(
    slip: type[MetadataCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_places, "MetadataCache", slip)
    assert found(reader_places.told, 20)


def test_a_replica_that_is_used_for_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def patient(age_ms: float) -> NearestReplicas:
        return NearestReplicas(2 * age_ms)

    monkeypatch.setattr(reader_places, "NearestReplicas", patient)
    assert found(reader_places.nearest, 20)


# --- waits


def test_a_room_without_turns_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchRoom, "in_turn", lambda _, partitions: list(partitions))
    assert found(reader_waits.rooms, 20)


def test_a_room_that_forgets_what_it_took_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchRoom, "is_full", False)
    assert found(reader_waits.rooms, 20)


def test_failures_that_outlast_a_success_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadFailures, "succeeded", lambda *_: None)
    assert found(reader_waits.failures, 20)


def test_a_topic_that_is_given_up_at_once_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnknownTopics, "is_overdue", lambda *_: True)
    assert found(reader_waits.unknown, 20)
