"""Places the replicas of new partitions: over all live brokers, and over their racks.

Brokers that are away take replicas only where the live ones are too few, so that topics can be
created while a broker starts again. Such a replica begins outside of the ISR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from oncelog.controller.image import MetadataImage, PartitionImage

__all__ = [
    "known_brokers",
    "new_partition",
    "new_partitions",
    "place_partitions",
    "placeable_brokers",
]


def known_brokers(image: MetadataImage) -> Set[int]:
    """Return the brokers of the cluster: those that are registered, and those that are away."""
    return image.brokers.keys() | image.directories.keys()


def placeable_brokers(image: MetadataImage) -> dict[int, str | None]:
    """Return the brokers that take new replicas, each with its rack.

    Those that shut down take none, and none of which is not decided yet what they have lost.
    """
    return {
        broker_id: broker.rack
        for broker_id, broker in sorted(image.brokers.items())
        if broker.is_clean and not broker.is_shutting_down
    }


def place_partitions(
    image: MetadataImage, start: int, numbers: range, factor: int
) -> tuple[PartitionImage, ...] | str:
    """Return new partitions of `factor` replicas, or why there are too few brokers for them."""
    able = placeable_brokers(image)
    others = sorted(known_brokers(image) - able.keys())
    if not able:
        return "All brokers are away or shutting down."
    if factor > len(able) + len(others):
        return (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of "
            f"{factor} cannot be reached because only {len(able) + len(others)} broker(s) are "
            "registered."
        )
    placed = new_partitions(able, start, numbers, min(factor, len(able)))
    added_count = factor - len(able)
    if added_count <= 0:
        return placed
    return tuple(
        replace(one, replicas=one.replicas + _taken_in_turns(others, number, added_count))
        for number, one in zip(numbers, placed, strict=True)
    )


def _taken_in_turns(brokers: Sequence[int], first: int, count: int) -> tuple[int, ...]:
    return tuple(brokers[(first + step) % len(brokers)] for step in range(count))


def new_partitions(
    racks: Mapping[int, str | None], start: int, numbers: range, factor: int
) -> tuple[PartitionImage, ...]:
    """Return partitions on some brokers, of which the racks are given.

    `start` partitions of other topics were placed before those of these numbers. Leaders go round
    the brokers. The followers of one leader begin elsewhere in each round, so that all others
    together take what a dead broker led. Where every broker has a rack, the replicas of a partition
    are spread over as many racks as can be. Partitions of the same replicas share one image.
    """
    placed = tuple(_placed(racks, start, numbers, factor))
    images = {each: PartitionImage(each[0], 0, each, each) for each in set(placed)}
    return tuple(images[each] for each in placed)


def new_partition(replicas: tuple[int, ...], able: Container[int]) -> PartitionImage | None:
    """Return the first state of a partition; None where none of its brokers can lead it."""
    isr = tuple(broker for broker in replicas if broker in able)
    return PartitionImage(isr[0], 0, isr, replicas) if isr else None


def _placed(
    racks: Mapping[int, str | None], start: int, numbers: range, factor: int
) -> Iterator[tuple[int, ...]]:
    has_racks = None not in racks.values()
    brokers = _alternating(racks) if has_racks else list(racks)
    count = len(brokers)
    for number in numbers:
        leader = (start + number) % count
        others = [
            brokers[(leader + 1 + (number // count + step) % (count - 1)) % count]
            for step in range(count - 1)
        ]
        chosen = [brokers[leader]]
        while len(chosen) < factor:
            rest = [broker for broker in others if broker not in chosen]
            if has_racks:
                used = Counter(racks[broker] for broker in chosen)
                fewest = min(used[racks[broker]] for broker in rest)
                rest = [broker for broker in rest if used[racks[broker]] == fewest]
            chosen.append(rest[0])
        yield tuple(chosen)


def _alternating(racks: Mapping[int, str | None]) -> Sequence[int]:
    """Return the brokers so that neighbours are in different racks, as far as can be."""
    taken: Counter[str | None] = Counter()
    keys = {}
    for broker, rack in racks.items():
        keys[broker] = (taken[rack], rack or "")
        taken[rack] += 1
    return sorted(racks, key=lambda broker: keys[broker])
