"""What several handlers need to build their responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode

__all__ = ["absent", "each_once", "fenced_for_old"]

T = TypeVar("T")

_NOT_LEADER: Final = ErrorCode.not_leader_or_follower


def each_once(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """The items in their order, each only where its key is met first.

    For requests whose elements ask for much: a frame of a megabyte that names one topic a hundred
    thousand times would otherwise be answered with gigabytes.
    """
    first: dict[object, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return tuple(first.values())


def absent(image: MetadataImage, topic: str, index: int) -> ErrorCode:
    """What is answered about a partition that this broker does not hold."""
    held = image.partition(topic, index)
    if held is None:
        return ErrorCode.unknown_topic_or_partition
    # Its folder has been off line since the start.
    return ErrorCode.kafka_storage_error if held.offline_replicas else _NOT_LEADER


def fenced_for_old(error: ErrorCode, version: int, since: int) -> ErrorCode:
    """Name a fenced producer INVALID_PRODUCER_EPOCH to clients before `since` (KIP-588)."""
    if error is ErrorCode.producer_fenced and version < since:
        return ErrorCode.invalid_producer_epoch
    return error
