"""Defines the paths and JSON values of the metadata store.

Only this module knows the encoding.

- ``/cluster``: the cluster id.
- ``/controller/epoch``: a number that each new controller raises: every write of a controller
  depends on the version that it wrote, so that a replaced one changes nothing.
- ``/topics/<name>``: one whole topic (id, partitions, configs), so that creating it is one atomic
  write and two brokers cannot both create it. A topic's name never contains a slash.
- ``/deleted-topics/<name>``: ids of topics that were deleted, each with the brokers that may still
  have a folder of it: such a folder is removed, not kept aside as a stray (D14).
- ``/configs``: the configs that are the cluster's, as `min.insync.replicas`.
- ``/directories/<broker>``: the directory ids of the data folders that hold its partitions.
- ``/group-configs/<group>``: the configs that a group overrides; its id is percent-encoded, for it
  may hold anything.
- ``/features``: the chosen levels of features.
- ``/producer-ids/next``: the first producer id that no block contains yet (INV-11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict
from urllib.parse import quote, unquote
from uuid import UUID

from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.core.ids import TopicId

__all__ = [
    "CLUSTER_CONFIG_PATH",
    "CLUSTER_PATH",
    "CONTROLLER_EPOCH_PATH",
    "DELETED_PREFIX",
    "DIRECTORIES_PREFIX",
    "FEATURES_PATH",
    "GROUP_CONFIGS_PREFIX",
    "PRODUCER_IDS_PATH",
    "TOPICS_PREFIX",
    "decode_config",
    "decode_deleted",
    "decode_directories",
    "decode_features",
    "decode_number",
    "decode_topic",
    "deleted_path",
    "directories_path",
    "encode_config",
    "encode_deleted",
    "encode_directories",
    "encode_features",
    "encode_number",
    "encode_topic",
    "group_config_path",
    "group_of",
    "topic_path",
]

CLUSTER_PATH = "/cluster"
CLUSTER_CONFIG_PATH = "/configs"
CONTROLLER_EPOCH_PATH = "/controller/epoch"
TOPICS_PREFIX = "/topics/"
DELETED_PREFIX = "/deleted-topics/"
DIRECTORIES_PREFIX = "/directories/"
FEATURES_PATH = "/features"
PRODUCER_IDS_PATH = "/producer-ids/next"
GROUP_CONFIGS_PREFIX = "/group-configs/"


def topic_path(name: str) -> str:
    """Return the path of a topic."""
    return TOPICS_PREFIX + name


class _Partition(TypedDict):
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    replicas: Sequence[int]


class _Topic(TypedDict):
    topic_id: str
    partitions: list[_Partition]
    config: dict[str, str]


def encode_topic(topic: TopicImage) -> bytes:
    """Encode a topic."""
    value: _Topic = {
        "topic_id": str(topic.topic_id),
        "partitions": [
            {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "isr": partition.isr,
                "replicas": partition.replicas,
            }
            for partition in topic.partitions
        ],
        "config": dict(topic.config),
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def decode_topic(path: str, value: bytes) -> TopicImage:
    """Decode the topic at `path`."""
    fields: _Topic = json.loads(value)
    return TopicImage(
        name=path.removeprefix(TOPICS_PREFIX),
        topic_id=UUID(fields["topic_id"]),
        partitions=tuple(
            PartitionImage(
                leader=partition["leader"],
                leader_epoch=partition["leader_epoch"],
                isr=tuple(partition["isr"]),
                replicas=tuple(partition["replicas"]),
            )
            for partition in fields["partitions"]
        ),
        config=fields["config"],
    )


def deleted_path(name: str) -> str:
    """Return the path of the ids of deleted topics of that name."""
    return DELETED_PREFIX + name


def group_config_path(group_id: str) -> str:
    """Return the path of a group's configs."""
    return GROUP_CONFIGS_PREFIX + quote(group_id, safe="")


def group_of(path: str) -> str:
    """Return the group whose configs are at `path`."""
    return unquote(path.removeprefix(GROUP_CONFIGS_PREFIX))


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode the configs of a group, or of the cluster."""
    return json.dumps(dict(config), separators=(",", ":"), sort_keys=True).encode()


def decode_config(value: bytes | None) -> dict[str, str]:
    """Decode such configs. Raises `ValueError` or `TypeError` if they are damaged."""
    if value is None:
        return {}
    config: dict[str, str] = dict(json.loads(value))
    return {str(name): str(text) for name, text in config.items()}


def directories_path(broker_id: int) -> str:
    """Return the path of the directory ids of a broker's log directories."""
    return f"{DIRECTORIES_PREFIX}{broker_id}"


def encode_directories(directory_ids: Iterable[str]) -> bytes:
    """Encode the directory ids of a broker's log directories."""
    return json.dumps(sorted(directory_ids)).encode()


def decode_directories(value: bytes | None) -> frozenset[str]:
    """Decode the directory ids of a broker's log directories."""
    return frozenset() if value is None else frozenset(json.loads(value))


def encode_number(number: int) -> bytes:
    """Encode a controller epoch or a producer id."""
    return str(number).encode()


def decode_number(value: bytes | None) -> int:
    """Decode a controller epoch or a producer id; 0 where there is none."""
    return 0 if value is None else int(value)


def encode_deleted(held: Mapping[TopicId, Iterable[int]]) -> bytes:
    """Encode the ids of deleted topics, each with the brokers that may still hold it."""
    value = {str(topic_id): list(brokers) for topic_id, brokers in held.items()}
    return json.dumps(value, separators=(",", ":")).encode()


def decode_deleted(value: bytes) -> dict[TopicId, tuple[int, ...]]:
    """Decode the ids of deleted topics, each with the brokers that may still hold it.

    Earlier versions wrote a list of ids, without brokers: there was one.
    """
    found: dict[str, list[int]] | list[str] = json.loads(value)
    if isinstance(found, list):
        return {UUID(topic_id): () for topic_id in found}
    return {UUID(topic_id): tuple(brokers) for topic_id, brokers in found.items()}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Encode the chosen levels of features."""
    return json.dumps(dict(levels), separators=(",", ":"), sort_keys=True).encode()


def decode_features(value: bytes | None) -> dict[str, int]:
    """Decode the chosen levels. Raises `ValueError` for an invalid value."""
    if value is None:
        return {}
    levels: dict[str, int] = json.loads(value)
    return {name: int(level) for name, level in levels.items()}
