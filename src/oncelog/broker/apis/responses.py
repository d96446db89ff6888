"""Builds parts of responses that several handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode

__all__ = ["absent", "each_once"]

T = TypeVar("T")

_NOT_LEADER: Final = ErrorCode.not_leader_or_follower


def each_once(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """Return the items in order, without those whose key occurred before.

    Without this, a frame of one megabyte that names one topic 100,000 times would get a reply of
    gigabytes.
    """
    first: dict[object, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return tuple(first.values())


def absent(image: MetadataImage, broker_id: int, topic: str, index: int) -> ErrorCode:
    """Return the error for a partition that this broker does not host."""
    held = image.partition(topic, index)
    if held is None:
        return ErrorCode.unknown_topic_or_partition
    # Its log directory here has been offline since the start. Another broker's says nothing of us.
    is_off_line = broker_id in held.offline_replicas
    return ErrorCode.kafka_storage_error if is_off_line else _NOT_LEADER
