"""The node by which brokers learn what changed in ZooKeeper: the newest steps and their paths.

ZooKeeper's watches say that something changed, not what, and nothing of what changed while a broker
was not connected. So every step of writes also sets this node in the same transaction: it names
the paths of the newest steps. A step is known by its zxid, ZooKeeper's number of the transaction,
which is the same on every server. The newest step's is not in the value, as its writer cannot know
it before: it is the zxid of the node itself. Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog.core.zookeeper_limits import (
    ZOOKEEPER_RING_BYTES_MAX,
    ZOOKEEPER_RING_STEP_BYTES_MAX,
    ZOOKEEPER_RING_STEPS_COUNT_MAX,
)

__all__ = [
    "RING_PATH",
    "Named",
    "RingStep",
    "decode_ring",
    "encode_ring",
    "named_since",
    "newest_named",
]

RING_PATH = "/oncelog/revision"

_BOUND_MARK = "@"
"""Before the path of a value that its step bound to a session. Paths begin with a slash."""


class RingStep(NamedTuple):
    """One step of writes; `paths` None: they were too many to be named, so all may have changed."""

    zxid: int
    paths: tuple[str, ...] | None


class Named(NamedTuple):
    """The newest step that wrote a path, and whether one of them bound it to a session."""

    zxid: int
    is_bound: bool


def encode_ring(before: Sequence[RingStep], paths: Iterable[str], bound: Iterable[str]) -> bytes:
    """Encode the ring after a step that writes `paths`, those in `bound` bound to a session.

    The oldest steps are left out where the ring has become too long.
    """
    marked = frozenset(bound)
    names = [f"{_BOUND_MARK}{path}" if path in marked else path for path in sorted(paths)]
    step = [0, names if _size(names) <= ZOOKEEPER_RING_STEP_BYTES_MAX else None]
    kept: list[object] = [step]
    left = ZOOKEEPER_RING_BYTES_MAX
    for zxid, earlier in reversed(before[1 - ZOOKEEPER_RING_STEPS_COUNT_MAX :]):
        left -= _size(earlier or ())
        if left < 0:
            break
        kept.append([zxid, earlier])
    kept.reverse()
    return zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), level=1)


def decode_ring(value: bytes, zxid: int) -> list[RingStep]:
    """Decode the steps, the newest last; `zxid` is that of the node.

    Raises `ValueError` or `TypeError` for what is no ring.
    """
    try:
        fields = json.loads(zlib.decompress(value))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    steps = [RingStep(int(at), None if names is None else tuple(names)) for at, names in fields]
    return [*steps[:-1], steps[-1]._replace(zxid=zxid)] if steps else [RingStep(zxid, ())]


def named_since(steps: Sequence[RingStep], zxid: int) -> dict[str, Named] | None:
    """Return what the steps after that of `zxid` wrote; None: everything may have changed.

    A step that is not in the ring has left it, or is of another history: a store that was restored
    from a copy has never had it.
    """
    for index in reversed(range(len(steps))):
        if steps[index].zxid == zxid:
            return newest_named(steps[index + 1 :])
        if steps[index].paths is None:
            return None
    return None


def newest_named(steps: Sequence[RingStep]) -> dict[str, Named]:
    """Return what the newest steps wrote, down to one that does not name its paths."""
    found: dict[str, Named] = {}
    for zxid, names in reversed(steps):
        if names is None:
            break
        for name in names:
            path = name.removeprefix(_BOUND_MARK)
            newest = found.setdefault(path, Named(zxid, is_bound=False))
            if path != name:
                found[path] = newest._replace(is_bound=True)
    return found


def _size(names: Sequence[str]) -> int:
    return 24 + sum(len(name) + 3 for name in names)
