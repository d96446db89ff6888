"""The decoded entries of the metadata store, updated entry by entry."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.controller import layout
from oncelog.controller.image import TopicImage
from oncelog.core.ids import TopicId

__all__ = ["Contents"]


class Contents:
    """Everything that a metadata image consists of, except the live brokers."""

    __slots__ = (
        "cluster_config",
        "deleted",
        "directories",
        "features",
        "group_configs",
        "topics",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.deleted: dict[str, Mapping[TopicId, tuple[int, ...]]] = {}
        self.directories: dict[int, frozenset[str]] = {}
        self.cluster_config: Mapping[str, str] = {}
        self.features: dict[str, int] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}

    def take(self, path: str, value: bytes | None) -> None:
        """Apply an entry; `value` None removes it.

        Raises `ValueError`, `LookupError` or `TypeError` for a damaged value.
        """
        if path.startswith(layout.TOPICS_PREFIX):
            name = path.removeprefix(layout.TOPICS_PREFIX)
            if value is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = layout.decode_topic(path, value)
        elif path.startswith(layout.DELETED_PREFIX):
            name = path.removeprefix(layout.DELETED_PREFIX)
            if value is None:
                self.deleted.pop(name, None)
            else:
                self.deleted[name] = layout.decode_deleted(value)
        elif path.startswith(layout.GROUP_CONFIGS_PREFIX):
            group_id = layout.group_of(path)
            if value is None:
                self.group_configs.pop(group_id, None)
            else:
                self.group_configs[group_id] = layout.decode_config(value)
        elif path.startswith(layout.DIRECTORIES_PREFIX):
            broker_id = int(path.removeprefix(layout.DIRECTORIES_PREFIX))
            self.directories[broker_id] = layout.decode_directories(value)
        elif path == layout.CLUSTER_CONFIG_PATH:
            self.cluster_config = layout.decode_config(value)
        elif path == layout.FEATURES_PATH:
            self.features = layout.decode_features(value)
