"""Producers without transactions against a real broker: what they write down is what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.simulation.history import Acked, ProducerInitialized, SendFailed, Sent, Value
from oncelog.simulation.peers import producer
from tests.unit.simulation.peers.world import play, stuck, world

FLAVORS = ("librdkafka", "java", "old")


def log_of(folder: Path, topic: str = "t") -> list[bytes]:
    """Every value in the topic's logs."""
    from oncelog.protocol.batch import iter_headers
    from oncelog.protocol.record import iter_records

    values = []
    for path in sorted(folder.glob(f"{topic}-*/*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            if not header.is_control:
                values += [record.value or b"" for record in iter_records(data, position, header)]
    return values


def run_producer(tmp_path: Path, **parameters: Any) -> Any:
    trouble = parameters.pop("trouble", 0.0)
    seen: list[Any] = []

    async def story() -> None:
        async with world(tmp_path, parameters.pop("seed", 1)) as w:
            await w.create("t", 3, parameters.pop("topic_config", None))
            await w.run(
                [producer.run(w.context("p", **parameters))],
                trouble=(lambda: w.network.cut_some(trouble)) if trouble else None,
            )
            seen.append(w)

    play(story())
    return seen[0]


@pytest.mark.parametrize("flavor", FLAVORS)
def test_an_idempotent_producer_tells_of_every_record_and_each_is_in_the_log_once(
    tmp_path: Path, flavor: str
) -> None:
    w = run_producer(tmp_path, flavor=flavor, restart_chance=0, impatience=0, late=0)
    sent = {event.value for event in w.events(Sent)}
    acked = w.acked()
    assert len(sent) > 50
    assert set(acked) == sent
    assert sorted(log_of(tmp_path)) == sorted(value.encode() for value in sent)
    assert w.states() == ["settled"]
    assert w.events(ProducerInitialized)


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_cut_connections_cost_nothing_and_repeat_nothing(
    tmp_path: Path, flavor: str, seed: int
) -> None:
    w = run_producer(tmp_path, flavor=flavor, seed=seed, trouble=0.7, impatience=0.05)
    logged = log_of(tmp_path)
    assert len(set(logged)) == len(logged)
    assert {value.encode() for value in w.acked()} <= set(logged)
    certain = {e.value.encode() for e in w.events(SendFailed) if e.certain}
    assert not certain & set(logged)
    fates = [e.value for e in w.events(Acked)] + [e.value for e in w.events(SendFailed)]
    assert len(set(fates)) == len(fates)
    assert set(fates) == {e.value for e in w.events(Sent)}
    assert stuck(w.history.events) == []
    assert w.states() == ["settled"]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_plain_producer_says_with_which_acks(tmp_path: Path, acks: int) -> None:
    w = run_producer(tmp_path, flavor="librdkafka", acks=acks)
    assert {event.acks for event in w.events(Acked)} == {acks}
    assert w.events(ProducerInitialized) == []


def test_every_codec_key_header_and_timestamp_is_taken(tmp_path: Path) -> None:
    w = run_producer(
        tmp_path,
        restart_chance=0,
        codecs=("none", "gzip", "snappy", "lz4", "zstd"),
        timestamps=("now", "recent", "none"),
        topic_config={"message.timestamp.type": "LogAppendTime"},
    )
    assert len(w.acked()) > 50
    assert {Value.decode(value) for value in log_of(tmp_path)} == set(w.acked())
    assert stuck(w.history.events) == []
