"""The ring names what changed since a step, as long as it has that step."""

from __future__ import annotations

import json
import zlib

import pytest

from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_RING_BYTES_MAX,
    ZOOKEEPER_RING_STEP_BYTES_MAX,
    ZOOKEEPER_RING_STEPS_COUNT_MAX,
)
from oncelog.metadata.zookeeper.ring import (
    Named,
    RingStep,
    decode_ring,
    encode_ring,
    named_since,
    newest_named,
)


def ring_of(*steps: list[str], first_zxid: int = 10) -> list[RingStep]:
    """The ring after these steps; the zxid of each is one higher than the one before."""
    ring = decode_ring(encode_ring([], (), ()), first_zxid)
    for zxid, paths in enumerate(steps, first_zxid + 1):
        ring = decode_ring(encode_ring(ring, paths, ()), zxid)
    return ring


def test_the_paths_after_a_step_are_named_with_the_newest_of_theirs() -> None:
    ring = ring_of(["/a"], ["/b"], ["/a", "/c"])
    assert named_since(ring, 11) == {
        "/a": Named(13, is_bound=False),
        "/b": Named(12, is_bound=False),
        "/c": Named(13, is_bound=False),
    }
    assert named_since(ring, 13) == {}


def test_a_step_that_is_not_in_the_ring_may_have_been_before_anything() -> None:
    assert named_since(ring_of(["/a"]), 9) is None
    assert named_since(ring_of(["/a"]), 12) is None


def test_a_path_stays_marked_as_bound_when_a_later_step_writes_it() -> None:
    ring = decode_ring(encode_ring(ring_of(), ["/b"], ["/b"]), 11)
    ring = decode_ring(encode_ring(ring, ["/b"], ()), 12)
    assert named_since(ring, 10) == {"/b": Named(12, is_bound=True)}


def test_the_ring_keeps_its_newest_steps() -> None:
    newest = ZOOKEEPER_RING_STEPS_COUNT_MAX + 5
    steps = [RingStep(zxid, (f"/{zxid}",)) for zxid in range(1, newest)]
    ring = decode_ring(encode_ring(steps, ["/a"], ()), newest)
    assert ring[-1] == RingStep(newest, ("/a",))
    assert len(ring) == ZOOKEEPER_RING_STEPS_COUNT_MAX
    assert named_since(ring, newest - ZOOKEEPER_RING_STEPS_COUNT_MAX) is None
    assert named_since(ring, newest - ZOOKEEPER_RING_STEPS_COUNT_MAX + 1) is not None


def test_the_ring_is_bounded_in_bytes() -> None:
    step = [f"/{number:05}" for number in range(1_000)]
    ring = ring_of(*([step] * 100))
    text = zlib.decompress(encode_ring(ring, (), ()))
    assert len(text) <= ZOOKEEPER_RING_BYTES_MAX
    assert 5 < len(ring) < 20


def test_after_a_step_that_is_too_long_everything_may_have_changed() -> None:
    step = [f"/{number:0100}" for number in range(ZOOKEEPER_RING_STEP_BYTES_MAX // 100)]
    ring = ring_of(step, ["/a"])
    assert named_since(ring, 10) is None
    assert named_since(ring, 11) == newest_named(ring) == {"/a": Named(12, is_bound=False)}


@pytest.mark.parametrize("value", [b"", b"x", zlib.compress(b"x"), zlib.compress(b"[1]")])
def test_what_is_no_ring_is_refused(value: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode_ring(value, 1)


def test_a_ring_without_steps_begins_with_the_one_that_made_it() -> None:
    assert decode_ring(zlib.compress(json.dumps([]).encode()), 7) == [RingStep(7, ())]
