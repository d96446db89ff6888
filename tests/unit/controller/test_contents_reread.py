"""An image is a function of what the store has: however it was read, it is that of a whole reading.

Controllers write, are replaced in the middle of a creation or a deletion, and bring in order what
was left; brokers come and go. Readers read after any number of steps, and some lose the feed.
"""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.contents import Contents
from oncelog.controller.decision import Put
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.controller.writes import deleted_writes, topic_removal, topic_writes
from oncelog.metadata.state import StoreState
from oncelog.metadata.store import SessionId, Write

NAMES = ("a", "b")
STEPS_COUNT = 50


def shown(contents: Contents, state: StoreState) -> tuple[object, ...]:
    """All that can be asked of an image."""
    image = contents.image
    fields = [getattr(image, name) for name in MetadataImage.__slots__ if name != "revision"]
    paths = [change.path for change in state.changes(0).entries]
    return (*fields, [contents.version_of(path) for path in paths])


class World:
    """A store, and what may happen to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.state = StoreState()
        self.sessions: dict[int, SessionId] = {}
        self.ids_count = 0

    def happen(self) -> None:
        whole = Contents(MetadataImage(cluster_id="c"))
        whole.take(self.state.changes(0).entries, 1)
        self.rng.choice([self._topic, self._topic, self._topic, self._broker, self._other])(
            whole.image
        )

    def _topic(self, image: MetadataImage) -> None:
        name = self.rng.choice(NAMES)
        topic = image.topic(name)
        if self.rng.random() < 0.1:  # A new controller.
            self._put(
                [
                    Put(layout.state_path(n, i), None)
                    for n, left in image.leftovers.items()
                    for i in left
                ]
            )
        elif topic is None:
            self.ids_count += 1
            count = self.rng.randint(1, 4)
            made = TopicImage(
                name, UUID(int=self.ids_count), tuple(self._state() for _ in range(count))
            )
            self._put_parts(topic_writes(None, made))
        elif self.rng.random() < 0.3:
            held = {**image.deleted.get(name, {}), topic.topic_id: (1, 2)}
            self._put_parts([*deleted_writes(name, held), *topic_removal(topic)])
        elif self.rng.random() < 0.3:
            more = (*topic.partitions, *(self._state() for _ in range(self.rng.randint(1, 2))))
            self._put_parts(topic_writes(topic, TopicImage(name, topic.topic_id, more, {"x": "y"})))
        else:
            number = self.rng.randrange(len(topic.partitions))
            value = layout.encode_state(self._state(), self.rng.randint(0, 2))
            self._put([Put(layout.state_path(name, number), value)])

    def _broker(self, image: MetadataImage) -> None:
        broker_id = self.rng.randint(1, 3)
        session = self.sessions.pop(broker_id, None)
        if session is not None:
            self.state.end_session(session)
            return
        session = self.sessions[broker_id] = self.state.open_session(1, 0)
        epoch = image.broker_epochs.get(broker_id, 0) + 1
        own = BrokerImage(broker_id, "h", 1, broker_epoch=epoch)
        puts = [
            Put(layout.broker_path(broker_id), layout.encode_broker(own)),
            Put(layout.broker_epoch_path(broker_id), layout.encode_number(epoch)),
            Put(layout.directories_path(broker_id), layout.encode_directories({str(epoch)})),
        ]
        if image.controller_id == -1:
            self._put([Put(layout.CONTROLLER_PATH, layout.encode_controller(broker_id))], session)
        self._put(puts[:1], session)
        self._put(puts[1:])

    def _other(self, image: MetadataImage) -> None:
        config = layout.encode_config({"k": str(self.rng.random())})
        name = self.rng.choice(NAMES)
        path = layout.group_config_path(name)
        is_there = name in image.group_configs
        one = [
            Put(path, None if is_there else config),
            Put(layout.CLUSTER_CONFIG_PATH, config),
            Put(layout.CONTROLLER_EPOCH_PATH, layout.encode_number(image.controller_epoch + 1)),
            Put(layout.FEATURES_PATH, layout.encode_features({"transaction.version": 2})),
        ]
        if image.deleted:
            one.append(Put(layout.deleted_path(self.rng.choice([*image.deleted])), None))
        self._put([self.rng.choice(one)])

    def _state(self) -> PartitionImage:
        leader, epoch = self.rng.randint(-1, 2), self.rng.randint(0, 3)
        return PartitionImage(leader, epoch, (1, 2)[: self.rng.randint(1, 2)], (1, 2))

    def _put_parts(self, puts: list[Put] | tuple[Put, ...]) -> None:
        """Write in parts; the controller may die after each."""
        left = list(puts)
        while left:
            count = self.rng.randint(1, 3)
            self._put(left[:count])
            left = left[count:]
            if self.rng.random() < 0.15:
                return

    def _put(self, puts: list[Put], session: SessionId | None = None) -> None:
        writes = []
        for path, value in puts:
            stored = self.state.get(path)
            writes.append(Write(path, value, stored.version if stored else 0, session))
        self.state.write_all(writes)


@pytest.mark.parametrize("seed", range(12))
def test_an_image_is_that_of_a_whole_reading(seed: int) -> None:
    world = World(seed)
    reader, lost = Contents(MetadataImage(cluster_id="c")), Contents(MetadataImage(cluster_id="c"))
    for _ in range(STEPS_COUNT):
        world.happen()
        if world.rng.random() < 0.5:
            continue
        changes = world.state.changes(reader.image.revision)
        reader.take(changes.entries, changes.revision)
        fresh = Contents(MetadataImage(cluster_id="c"))
        fresh.take(world.state.changes(0).entries, changes.revision)
        assert shown(reader, world.state) == shown(fresh, world.state)
        if world.rng.random() < 0.3:
            # It missed what was deleted, and is told all that there is.
            values = [(path, *one) for path, one in world.state.list("").items()]
            lost.take(values, changes.revision, is_whole=True)
            assert shown(lost, world.state) == shown(fresh, world.state)
