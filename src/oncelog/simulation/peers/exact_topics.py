"""What must become of topics, worked out as naively as possible: a model of one client's topics.

One broker serves all of them, and no other client touches them. A change without an answer leaves
two possibilities, and the topic is changed no more, because the request may still arrive. This
module sends nothing and shares no code with the controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from oncelog.core.config_definition import ConfigError
from oncelog.core.config_keys import TOPIC_KEYS
from oncelog.core.errors import ErrorCode

__all__ = ["KnownTopic", "NewTopicWish", "TopicsModel", "bad_config", "bad_name"]

PARTITIONS_MAX: Final = 100_000
"""More than any request of a client here may ask for, and more than a broker makes."""
_LIST_KEYS: Final = frozenset({"cleanup.policy"})


@dataclass(frozen=True)
class KnownTopic:
    """A topic as it must be; the id is None until an answer has told it."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: UUID | None = None


@dataclass(frozen=True)
class NewTopicWish:
    """One topic of a CreateTopics request."""

    name: str
    partitions: int
    factor: int
    assignment: Mapping[int, Sequence[int]]
    config: Mapping[str, str | None]


class TopicsModel:
    """All topics of one client, by name."""

    def __init__(self, node: int) -> None:
        self._node = node
        self.topics: dict[str, KnownTopic] = {}
        self.doubtful: dict[str, tuple[KnownTopic | None, KnownTopic | None]] = {}
        """Topics after a change without an answer: as before, or as after it."""

    def names(self) -> list[str]:
        """Return the names of all topics that are there for certain."""
        return sorted(self.topics)

    def is_doubtful(self, name: str) -> bool:
        """Whether a name, or one that looks like it, may or may not be taken."""
        flat = name.replace(".", "_")
        return any(other.replace(".", "_") == flat for other in self.doubtful)

    def doubt(self, name: str, after: KnownTopic | None) -> None:
        """A change was not answered: the topic is as it was, or as after it, from now on."""
        self.doubtful[name] = (self.topics.pop(name, None), after)

    def creations(
        self, wishes: Sequence[NewTopicWish]
    ) -> Iterator[tuple[NewTopicWish, ErrorCode, KnownTopic | None]]:
        """Return what must become of each topic of a request, in its order."""
        taken = dict(self.topics)
        names = [wish.name for wish in wishes]
        for place, wish in enumerate(wishes):
            if names.count(wish.name) > 1:
                if names.index(wish.name) == place:
                    yield wish, ErrorCode.invalid_request, None
                continue
            error, count = self._creation(wish, taken)
            if error is not ErrorCode.none:
                yield wish, error, None
                continue
            config = {key: value for key, value in wish.config.items() if value is not None}
            topic = KnownTopic(wish.name, count, config)
            taken[wish.name] = topic
            yield wish, error, topic

    def _creation(
        self, wish: NewTopicWish, taken: Mapping[str, KnownTopic]
    ) -> tuple[ErrorCode, int]:
        if bad_name(wish.name):
            return ErrorCode.invalid_topic_exception, 0
        if wish.name in taken:
            return ErrorCode.topic_already_exists, 0
        if any(_looks_like(wish.name, other) for other in taken):
            return ErrorCode.invalid_topic_exception, 0
        if bad_config(wish.config):
            return ErrorCode.invalid_config, 0
        if wish.assignment:
            return self._assigned(wish)
        count = 1 if wish.partitions == -1 else wish.partitions
        if count <= 0:
            return ErrorCode.invalid_partitions, 0
        if count >= PARTITIONS_MAX:
            return ErrorCode.policy_violation, 0
        is_placeable = wish.factor in (-1, 1)
        return ErrorCode.none if is_placeable else ErrorCode.invalid_replication_factor, count

    def _assigned(self, wish: NewTopicWish) -> tuple[ErrorCode, int]:
        count = len(wish.assignment)
        if wish.factor != -1 or wish.partitions not in (-1, count):
            return ErrorCode.invalid_request, 0
        is_sound = set(wish.assignment) == set(range(count)) and all(
            list(replicas) == [self._node] for replicas in wish.assignment.values()
        )
        return ErrorCode.none if is_sound else ErrorCode.invalid_replica_assignment, count

    def growth(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> ErrorCode:
        """Return the answer to a request for that many partitions of a topic."""
        topic = self.topics.get(name)
        if topic is None:
            return ErrorCode.unknown_topic_or_partition
        if count <= topic.partitions:
            return ErrorCode.invalid_partitions
        if count >= PARTITIONS_MAX:
            return ErrorCode.policy_violation
        added = [[self._node]] * (count - topic.partitions)
        if assignments is not None and [list(replicas) for replicas in assignments] != added:
            return ErrorCode.invalid_replica_assignment
        return ErrorCode.none

    def configured(
        self, name: str, entries: Sequence[tuple[str, int, str | None]], *, replaces: bool
    ) -> tuple[ErrorCode, dict[str, str]]:
        """Return the answer to a change of a topic's configs, and its configs after that.

        An entry is a key, an operation (0 set, 1 delete, 2 append, 3 subtract) and a value.
        """
        keys = [key for key, _, _ in entries]
        is_null = any(value is None and operation != 1 for _, operation, value in entries)
        if len(set(keys)) < len(keys) or is_null or any(not 0 <= o <= 3 for _, o, _ in entries):
            return ErrorCode.invalid_request, {}
        topic = self.topics.get(name)
        config = dict(topic.config) if topic is not None and not replaces else {}
        for key, operation, value in entries:
            if operation == 0:
                config[key] = value or ""
            elif operation == 1:
                config.pop(key, None)
            elif key not in _LIST_KEYS:
                return ErrorCode.invalid_config, {}
            else:
                parts = [part for part in config.get(key, "delete").split(",") if part]
                others = [part for part in parts if part != value]
                is_there = others != parts
                appended = parts if is_there else [*parts, value or ""]
                config[key] = ",".join(appended if operation == 2 else others)
        if name == "":
            return ErrorCode.invalid_request, {}
        if bad_name(name):
            return ErrorCode.invalid_topic_exception, {}
        if bad_config(config):
            return ErrorCode.invalid_config, {}
        if topic is None:
            return ErrorCode.unknown_topic_or_partition, {}
        return ErrorCode.none, config


def bad_name(name: str) -> bool:
    """Whether no topic can have this name."""
    return name in ("", ".", "..") or len(name) > 249 or not re.fullmatch(r"[\w.-]+", name, re.A)


def bad_config(config: Mapping[str, str | None]) -> bool:
    """Whether a topic cannot be configured like this."""
    for key, value in config.items():
        if key not in TOPIC_KEYS or value is None:
            return True
        try:
            TOPIC_KEYS[key][0].parse(value)
        except ConfigError:
            return True
    return False


def _looks_like(name: str, other: str) -> bool:
    return name.replace(".", "_") == other.replace(".", "_")
