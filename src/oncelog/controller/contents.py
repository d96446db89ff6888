"""The image of what the metadata store says, advanced entry by entry.

A change costs what it changes: a new image shares everything else with the one before. Deleted is
only what an entry names as deleted; what is merely missing is damage, never a deletion (D14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oncelog.controller import acl_layout, layout, quota_layout, scram_layout
from oncelog.controller.image import (
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicDelta,
    TopicImage,
)
from oncelog.core.errors import OncelogError

__all__ = ["Contents", "DamagedMetadata"]

_States = Mapping[int, PartitionImage | None]
"""States of a topic's partitions; those of an earlier version name no replicas. None: deleted."""


class DamagedMetadata(OncelogError):  # noqa: N818 - names what was found
    """A value of the store cannot be read, or is missing."""


class Contents:
    """The image of the store's entries, and the versions of their values."""

    __slots__ = ("_states", "_versions", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._versions: dict[str, int] = {}
        self._states: dict[str, _States] = {}
        """States of partitions that no topic's value names (yet)."""

    def version_of(self, path: str) -> int:
        """Return the version of the value at a path, 0 where there is none."""
        return self._versions.get(path, 0)

    def take(
        self,
        entries: Sequence[tuple[str, bytes | None, int]],
        revision: int,
        *,
        is_whole: bool = False,
    ) -> ImageDelta:
        """Apply what has changed up to a revision: paths, values (None: deleted) and versions.

        With `is_whole` the store says that there is nothing else. Returns what it changed in
        topics. Raises `DamagedMetadata`, and has then changed nothing.
        """
        if is_whole:
            gone = self._versions.keys() - {path for path, _, _ in entries}
            entries = [*entries, *((path, None, 0) for path in sorted(gone))]
        step = _Step(self.image)
        for path, value, _ in entries:
            try:
                step.take(path, value)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise DamagedMetadata(f"the metadata at {path} is damaged ({error})") from error
        states = {name: self._states.get(name, {}) for name in step.topics()}
        found = [step.delta_of(name, states[name]) for name in states]
        delta = _joined(found)
        self.image = self.image.after(delta, revision=revision, **step.fields)
        for path, value, version in entries:
            if value is None:
                self._versions.pop(path, None)
            else:
                self._versions[path] = version
        kept = self._states
        # A topic's value is deleted first: the states of its partitions may still be there.
        ended = {topic.name: dict(enumerate(topic.partitions)) for topic in delta.deleted}
        for name, before in states.items():
            self._keep(name, {**ended.get(name, {}), **before, **step.states.get(name, {})})
        if self._states is not kept:
            left = {name: tuple(sorted(states)) for name, states in self._states.items()}
            self.image = self.image.after(ImageDelta(), leftovers=left)
        return delta

    def _keep(self, name: str, states: _States) -> None:
        topic = self.image.topic(name)
        named_count = 0 if topic is None else len(topic.partitions)
        left = {n: state for n, state in states.items() if state is not None and n >= named_count}
        if left != self._states.get(name, {}):
            others = {other: kept for other, kept in self._states.items() if other != name}
            self._states = others | ({name: left} if left else {})


class _Step:
    """What some entries make of an image."""

    __slots__ = ("_image", "_values", "fields", "states")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._values: dict[str, layout.TopicValue | None] = {}
        self.states: dict[str, dict[int, PartitionImage | None]] = {}
        self.fields: dict[str, Any] = {}
        """The fields of the image that change, topics apart."""

    def topics(self) -> Iterable[str]:
        """The names of the topics that have changed."""
        return {**self._values, **self.states}

    def take(self, path: str, value: bytes | None) -> None:
        """Decode one entry. Raises what a damaged value makes its decoder raise."""
        if path.startswith(layout.TOPICS_PREFIX):
            name, number = layout.partition_of(path)
            if number is None:
                self._values[name] = None if value is None else layout.decode_topic(value)
            else:
                state = None if value is None else layout.decode_state(value)
                self.states.setdefault(name, {})[number] = state
        elif path.startswith(layout.DELETED_PREFIX):
            name = path.removeprefix(layout.DELETED_PREFIX)
            self._put("deleted", name, None if value is None else layout.decode_deleted(value))
        elif path.startswith(layout.GROUP_CONFIGS_PREFIX):
            config = None if value is None else layout.decode_config(value)
            self._put("group_configs", layout.group_of(path), config)
        elif path.startswith(scram_layout.SCRAM_PREFIX):
            found = None if value is None else scram_layout.decode_scram_credentials(value)
            self._put("scram_credentials", scram_layout.user_of(path), found)
        elif path.startswith(acl_layout.ACLS_PREFIX):
            acl = None if value is None else acl_layout.decode_acl(path, value)
            self._put("acls", path.removeprefix(acl_layout.ACLS_PREFIX), acl)
        elif path.startswith(quota_layout.QUOTAS_PREFIX):
            quotas = None if value is None else quota_layout.decode_quotas(value)
            self._put("client_quotas", quota_layout.entity_of(path), quotas)
        elif path.startswith(layout.DIRECTORIES_PREFIX):
            broker_id = int(path.removeprefix(layout.DIRECTORIES_PREFIX))
            noted = None if value is None else layout.decode_directories(value)
            self._put("directories", broker_id, noted)
        elif path.startswith(layout.BROKERS_PREFIX):
            broker_id = int(path.removeprefix(layout.BROKERS_PREFIX))
            broker = None if value is None else layout.decode_broker(path, value)
            self._put("brokers", broker_id, broker)
        elif path.startswith(layout.BROKER_EPOCHS_PREFIX):
            broker_id = int(path.removeprefix(layout.BROKER_EPOCHS_PREFIX))
            epoch = None if value is None else layout.decode_number(value)
            self._put("broker_epochs", broker_id, epoch)
        elif path == layout.CONTROLLER_PATH:
            self.fields["controller_id"] = layout.decode_controller(value)
        elif path == layout.CONTROLLER_EPOCH_PATH:
            self.fields["controller_epoch"] = layout.decode_number(value)
        elif path == layout.CLUSTER_CONFIG_PATH:
            self.fields["cluster_config"] = layout.decode_config(value)
        elif path == scram_layout.SCRAM_SECRET_PATH:
            self.fields["scram_secret"] = scram_layout.decode_secret(value)
        elif path == layout.FEATURES_PATH:
            self.fields["chosen_features"] = layout.decode_features(value)

    def _put(self, field: str, key: object, value: object) -> None:
        """Change one entry of a field that is a mapping; None removes it."""
        if field not in self.fields:
            self.fields[field] = dict(getattr(self._image, field))
        if value is None:
            self.fields[field].pop(key, None)
        else:
            self.fields[field][key] = value

    def delta_of(self, name: str, earlier: _States) -> ImageDelta:
        """Return what becomes of a topic; `earlier` are states that came before its value."""
        before = self._image.topic(name)
        states = {**earlier, **self.states.get(name, {})}
        if name in self._values:
            value = self._values[name]
        elif before is not None:
            return _with_states(before, states)
        else:
            return ImageDelta()  # States of a topic that is to come, or that is deleted already.
        gone = () if before is None else (before,)
        if value is None:
            return ImageDelta(deleted=gone)
        old = before.partitions if before and before.topic_id == value.topic_id else ()
        partitions = tuple(
            _partition(name, number, replicas, states.get(number, _at(old, number)))
            for number, replicas in enumerate(value.replicas)
        )
        topic = TopicImage(name, value.topic_id, partitions, value.config, value.unknown_fields)
        if before is None or before.topic_id != topic.topic_id:
            return ImageDelta(deleted=gone, created=(topic,))
        changed: Sequence[int] = range(len(partitions))
        if before.config == topic.config:
            changed = [n for n in changed if partitions[n] != _at(old, n)]
        return ImageDelta(changed=(TopicDelta(topic, changed),))


def _with_states(before: TopicImage, states: _States) -> ImageDelta:
    partitions = list(before.partitions)
    numbers = [number for number in sorted(states) if number < len(partitions)]
    for number in numbers:
        replicas = partitions[number].replicas
        partitions[number] = _partition(before.name, number, replicas, states[number])
    if not numbers:
        return ImageDelta()
    return ImageDelta(changed=(TopicDelta(replace(before, partitions=tuple(partitions)), numbers),))


def _partition(
    name: str, number: int, replicas: tuple[int, ...], state: PartitionImage | None
) -> PartitionImage:
    if state is None:
        path = layout.state_path(name, number)
        raise DamagedMetadata(f"the metadata is damaged (topic {name} has nothing at {path})")
    return state if state.replicas else replace(state, replicas=replicas)


def _at(partitions: Sequence[PartitionImage], number: int) -> PartitionImage | None:
    return partitions[number] if number < len(partitions) else None


def _joined(deltas: Iterable[ImageDelta]) -> ImageDelta:
    deltas = tuple(deltas)
    return ImageDelta(
        deleted=tuple(topic for delta in deltas for topic in delta.deleted),
        created=tuple(topic for delta in deltas for topic in delta.created),
        changed=tuple(change for delta in deltas for change in delta.changed),
    )
