"""Rewrites the values of a store that an earlier version wrote, in one atomic step.

Format 1 had a topic and all of its partitions in one value, and other paths. What it wrote is not
changed any more, so this module shares nothing with the present format but the images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from oncelog.controller import layout
from oncelog.controller.decision import Put
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.writes import topic_writes
from oncelog.core.errors import OncelogError

__all__ = ["cluster_before", "upgrade_writes"]

_TOPICS: Final = "/topics/"
_DELETED: Final = "/deleted-topics/"
_CLUSTER: Final = "/cluster"
_MOVED: Final = {
    "/controller/epoch": layout.CONTROLLER_EPOCH_PATH,
    "/features": layout.FEATURES_PATH,
    "/producer-ids/next": layout.PRODUCER_IDS_PATH,
    "/directories/": layout.DIRECTORIES_PREFIX,
    "/group-configs/": layout.GROUP_CONFIGS_PREFIX,
}
"""Paths, and beginnings of paths, whose values are the same."""


def cluster_before(values: Mapping[str, bytes]) -> str | None:
    """Return the id of the cluster that values of format 1 belong to; None if they name none."""
    return values[_CLUSTER].decode(errors="replace") if _CLUSTER in values else None


def upgrade_writes(values: Mapping[str, bytes]) -> tuple[Put, ...]:
    """Return what makes the present format of all values of format 1.

    What no path of format 1 names stays. Raises `OncelogError` for a value that cannot be read.
    """
    writes: list[Put] = []
    for path, value in values.items():
        try:
            new = _upgraded(path, value)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise OncelogError(f"the metadata at {path} is damaged ({error})") from error
        if new:
            writes += (Put(path, None), *new)
    return (*writes, Put(layout.FORMAT_PATH, layout.encode_number(layout.FORMAT)))


def _upgraded(path: str, value: bytes) -> tuple[Put, ...]:
    if path.startswith(_TOPICS):
        return topic_writes(None, _topic(path.removeprefix(_TOPICS), value))
    if path == _CLUSTER:
        return (Put(layout.CLUSTER_PATH, layout.encode_cluster_id(value.decode())),)
    if path.startswith(_DELETED):
        # It did not say which brokers may hold such a topic: there was one broker.
        held = {UUID(topic_id): () for topic_id in json.loads(value)}
        new_path = layout.deleted_path(path.removeprefix(_DELETED))
        return (Put(new_path, layout.encode_deleted(held)),)
    for old, new in _MOVED.items():
        if path == old or (old.endswith("/") and path.startswith(old)):
            return (Put(new + path.removeprefix(old), value),)
    return ()


def _topic(name: str, value: bytes) -> TopicImage:
    fields = json.loads(value)
    partitions = tuple(
        PartitionImage(
            leader=partition["leader"],
            leader_epoch=partition["leader_epoch"],
            isr=tuple(partition["isr"]),
            replicas=tuple(partition["replicas"]),
        )
        for partition in fields["partitions"]
    )
    return TopicImage(name, UUID(fields["topic_id"]), partitions, dict(fields["config"]))
