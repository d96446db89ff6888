"""Simulates controllers alone: their decisions, and a store that takes, loses or cuts their writes.

Brokers begin lives, stop, die, lose power or a log directory, and are forgotten; topics come, grow,
change and go; leaders ask for ISRs, rightly and wrongly. A controller may die before its write, in
it, or before it gets the answer; the next one reads the store and brings all in order. One that
was replaced tries to go on. `controller_model` says what each state may be, this module what
becomes of topics, and what each request for an ISR is answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

from oncelog.controller import layout
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ControllerDecision, ControllerEvent
from oncelog.controller.decisions import decide
from oncelog.controller.events import (
    AlterPartition,
    AlterTopicConfigs,
    BrokerRegistered,
    BrokersChanged,
    BrokerShuttingDown,
    CreatePartitions,
    CreateTopics,
    DeleteTopic,
    DeletionsConfirmed,
    DirectoryFailed,
    ElectLeaders,
    ForgetBroker,
    IsrChange,
    IsrMember,
)
from oncelog.controller.image import BrokerImage, MetadataImage, TopicImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.metadata.state import StoreState
from oncelog.metadata.store import Conflict, Fenced, SessionId, Write
from oncelog.simulation.components.controller_model import End, ExpectedPartition, Facts
from oncelog.simulation.components.controller_moves import Moves, wrong_placement
from oncelog.simulation.components.controller_office import Decide, OfficeHolder, may_be

__all__ = ["SimulatedControllers", "controllers"]

LIVES_COUNT: Final = 3
STEPS_COUNT: Final = 60
BROKERS_COUNT: Final = 4
DEATH_CHANCE: Final = 0.08
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_WEIGHTS: Final = {
    "ask for an ISR": 20.0,
    "start": 12.0,
    "end": 8.0,
    "create": 2.0,
    "reassign": 4.0,
}
"""How much more often than the other steps each is taken."""


def controllers(rng: random.Random, decided: Decide = decide) -> Iterator[str]:
    """Simulate some lives of a cluster; yield what is wrong after the first step that is."""
    for life in range(LIVES_COUNT):
        cluster = SimulatedControllers(rng, decided)
        for number in range(STEPS_COUNT):
            name = cluster.step()
            if cluster.wrong:
                yield from (f"life {life}, step {number}, {name}: {e}" for e in cluster.wrong)
                return


class _BrokerLife(NamedTuple):
    """A broker's registration, and what it tells the controller."""

    session: SessionId
    epoch: int
    is_clean: bool
    off_line: frozenset[TopicPartition]


class SimulatedControllers(Moves):
    """A store, brokers that are only registrations, and one controller after the other."""

    def __init__(self, rng: random.Random, decided: Decide) -> None:
        self._rng = rng
        self._decided = decided
        self.wrong: list[str] = []
        self._store = StoreState()
        self._ids = iter(range(1, 1 << 30))
        self._lives: dict[int, _BrokerLife] = {}
        self._epochs = dict.fromkeys(range(BROKERS_COUNT), 0)
        self._undecided: set[int] = set()
        """The brokers whose lives no controller has decided on."""
        self._has_ended = False
        """Whether a registration has ended that no controller has seen to."""
        self._logs: dict[tuple[int, TopicPartition], End] = {}
        self._doubted: set[int] = set()
        """Brokers that lost power, and have not been back."""
        self._parts: dict[TopicPartition, ExpectedPartition] = {}
        self._gone: dict[TopicId, set[int]] = {}
        """The ids of deleted topics, and who may hold something of each."""
        self._names: dict[TopicId, str] = {}
        self._old: OfficeHolder | None = None
        self._controller = OfficeHolder(self._store, decided)
        self._steps: dict[str, Callable[[], None]] = {
            "start": self._start,
            "end": self._end,
            "shut down": self._shut_down,
            "create": self._create,
            "grow": self._grow,
            "delete": self._delete,
            "confirm": self._confirm,
            "change rules": self._change_rules,
            "ask for an ISR": self._ask,
            "elect": self._elect,
            "fail a directory": self._fail,
            "forget": self._forget,
            "reassign": self._reassign,
            "confirm removals": self._confirm_removed,
            "replace the controller": self._replace,
        }
        self._order = list(self._steps)
        weights = [_WEIGHTS.get(name, 1.0) * rng.choice((0.3, 1.0, 2.0)) for name in self._order]
        self._weights = list(accumulate(weights))
        for broker in self._epochs:
            self._begin_life(broker, is_clean=True)
        self._see_to_all()
        self._create()

    @property
    def _image(self) -> MetadataImage:
        return self._controller.image

    def step(self) -> str:
        """Do one thing, bring all in order, and look; return its name."""
        name = self._rng.choices(self._order, cum_weights=self._weights)[0]
        self._steps[name]()
        self._see_to_all()
        self._look()
        return name

    # --- deciding

    def _submit(self, event: ControllerEvent[Any]) -> object | None:
        """Have an event decided and written; None where its controller died before an answer."""
        controller = self._controller
        controller.read()
        while True:
            decision = controller.decide(event, TopicId(int=next(self._ids)))
            if self._rng.random() < 0.03:
                self._end()
            count = len(decision.writes)
            dies = self._rng.random() < DEATH_CHANCE
            if dies and count > 1:
                count = self._rng.choice((0, count, self._rng.randint(2, count)))
            if not count:
                break
            try:
                writes = controller.write(decision, count)
            except Conflict:
                controller.read()
                continue
            self._written(event, decision, writes)
            break
        if dies:
            self._replace()
            return None
        return object() if decision.reply is None else decision.reply

    def _written(
        self,
        event: ControllerEvent[Any],
        decision: ControllerDecision[Any],
        writes: list[Write],
    ) -> None:
        """Compare each state that was written with what it may be."""
        brokers = dict(self._image.brokers)
        for write in writes:
            if write.path.startswith(layout.BROKERS_PREFIX) and write.value is not None:
                member = layout.decode_broker(write.path, write.value)
                brokers[member.broker_id] = member
        if isinstance(event, BrokerRegistered):
            # In a write that was cut it may say so last.
            brokers[event.broker_id] = replace(brokers[event.broker_id], is_clean=True)
        is_asked = isinstance(event, ElectLeaders) and event.is_unclean
        warned = " ".join(notice.text for notice in decision.notices if notice.is_warning)
        facts = Facts(brokers, is_asked, warned, isinstance(event, AlterPartition))
        is_whole = len(writes) == len(decision.writes)
        self._note(event, facts, None if is_whole else {write.path for write in writes})
        topics = [w for w in writes if w.path.startswith(layout.TOPICS_PREFIX)]
        for write in topics:
            name, number = layout.partition_of(write.path)
            part = None if number is None else self._parts.get(TopicPartition(name, number))
            if part is not None and write.value is not None:
                after = layout.decode_state(write.value)
                texts = wrong_placement(part.label, part.state, after, event, facts)
                self.wrong += (f"{part.label}: {text}" for text in texts)
                self.wrong += (f"{part.label}: {text}" for text in part.change(after, facts))
        self._controller.read()
        for part in self._parts.values():
            part.commit(facts)
        self._compare_topics()

    def _note(
        self,
        event: ControllerEvent[Any],
        facts: Facts,
        paths: set[str] | None,
    ) -> None:
        """Take over what follows from an event that is written; if it was cut, at these paths."""
        if isinstance(event, BrokerRegistered):
            broker = event.broker_id
            if paths is None:
                self._doubted.discard(broker)
            for label, part in self._parts.items():
                if paths is not None and layout.state_path(*label) not in paths:
                    continue
                log = event.uncertain.get(label)
                if broker in part.lost and not event.is_clean:
                    part.came_back(broker, log, facts)
                elif log is not None and broker in part.told:
                    part.told[broker] = log
            for topic_id in self._noted(paths):
                self._gone[topic_id].add(broker)
        elif isinstance(event, AlterTopicConfigs):
            rules = {one.name: one.value or "" for one in event.changes}
            for label, part in self._parts.items():
                if label.topic != event.name:
                    continue
                if paths is None or layout.state_path(*label) in paths:
                    part.obey(int(rules[MIN_ISR]), allows_unclean=rules[UNCLEAN] == "true")
        elif isinstance(event, DeleteTopic):
            topic = self._image.topic_by_id(event.topic_id)
            if topic is not None:
                replicas = {b for one in topic.partitions for b in (*one.replicas, *one.removed)}
                self._gone[event.topic_id] = replicas | facts.brokers.keys()
                self._names[event.topic_id] = topic.name
                for label in topic.topic_partitions():
                    self._parts.pop(label, None)
        elif isinstance(event, (DeletionsConfirmed, ForgetBroker)):
            for topic_id in self._noted(paths):
                if isinstance(event, ForgetBroker) or topic_id in event.topic_ids:
                    self._gone[topic_id].discard(event.broker_id)
            if isinstance(event, ForgetBroker):
                for label, part in self._parts.items():
                    if paths is None or layout.state_path(*label) in paths:
                        part.members.discard(event.broker_id)
            self._gone = {topic_id: held for topic_id, held in self._gone.items() if held}

    def _noted(self, paths: set[str] | None) -> list[TopicId]:
        """The deleted topics whose notes were written."""
        names = self._names
        return [one for one in self._gone if not paths or layout.deleted_path(names[one]) in paths]

    def _compare_topics(self) -> None:
        """Look for topics that came back, for notes of deletions, and for new partitions."""
        for topic in self._image.topics.values():
            if topic.topic_id in self._gone:
                self.wrong.append(f"{topic.name} was deleted and is there")
            for label, state in zip(topic.topic_partitions(), topic.partitions, strict=True):
                part, rules = self._parts.get(label), topic.config
                min_isr, unclean = int(rules[MIN_ISR]), rules[UNCLEAN] == "true"
                if part is None:
                    part = ExpectedPartition(label, topic.topic_id, state, min_isr, unclean)
                    part.members = {*state.isr}
                    self._parts[label] = part
                # A write that was cut may not have come to the rules.
                part.min_isr, part.allows_unclean = min_isr, unclean
                if part.state != state:
                    self.wrong.append(f"{label} is {state}, written was {part.state}")
        noted = {
            topic_id: {*holders}
            for ids in self._image.deleted.values()
            for topic_id, holders in ids.items()
        }
        if noted != self._gone:
            self.wrong.append(f"deletions are noted as {noted}, not {self._gone}")

    def _see_to_all(self) -> None:
        """Do what controllers and brokers do until nothing is left to decide."""
        while self._has_ended or self._undecided or self._stopping():
            if self._has_ended:
                self._has_ended = False
                if self._submit(BrokersChanged()) is None:
                    self._has_ended = True
                continue
            if not self._undecided:
                # It asks until others lead all that others can lead.
                broker = self._stopping()[0]
                self._submit(BrokerShuttingDown(broker, self._lives[broker].epoch))
                continue
            broker = min(self._undecided)
            life = self._lives.get(broker)
            is_decided = life is None or self._submit(self._registration(broker, life)) is not None
            if is_decided and life is self._lives.get(broker):
                self._undecided.discard(broker)

    def _stopping(self) -> list[int]:
        """The brokers that shut down, and lead something that another one can lead."""
        self._controller.read()
        facts = Facts(self._image.brokers, False, "")
        return [
            part.state.leader
            for part in self._parts.values()
            if part.state.leader in self._lives
            and not facts.is_able(part.state.leader)
            and part.others_in_isr(facts)
        ]

    def _look(self) -> None:
        self._controller.read()
        facts = Facts(self._image.brokers, False, "")
        for label, part in self._parts.items():
            self.wrong += (f"{label}: {text}" for text in part.settled(facts))
        if self._image.leftovers:
            self.wrong.append(f"states are left over: {self._image.leftovers}")
        decision = self._controller.decide(BrokersChanged(), TopicId(int=1))
        if decision.writes:
            self.wrong.append(f"decided again it writes {decision.writes}")

    def _replace(self) -> None:
        """Have another controller claim the office, and the one before try to go on."""
        self._old, self._controller = self._controller, OfficeHolder(self._store, self._decided)
        self._has_ended = True
        for event in (BrokersChanged(), ElectLeaders(None)):
            decision = self._old.decide(event, TopicId(int=next(self._ids)))
            if decision.writes:
                try:
                    self._old.write(decision, len(decision.writes))
                except Fenced:
                    continue
                self.wrong.append("a controller that was replaced has written")

    # --- brokers

    def _begin_life(self, broker: int, *, is_clean: bool) -> None:
        self._epochs[broker] += 1
        epoch, session = self._epochs[broker], self._store.open_session(1e9, 0.0)
        labels = [label for label, part in self._parts.items() if broker in part.state.replicas]
        off_line = frozenset(label for label in labels if self._rng.random() < 0.1)
        if not is_clean:
            for label in labels:
                self._parts[label].lose(broker)
        member = BrokerImage(broker, "h", 1, None, broker_epoch=epoch, is_clean=is_clean)
        version = getattr(self._store.get(layout.broker_path(broker)), "version", 0)
        path = layout.broker_epoch_path(broker)
        epoch_version = getattr(self._store.get(path), "version", 0)
        self._store.write_all(
            [
                Write(path, layout.encode_number(epoch), epoch_version),
                Write(layout.broker_path(broker), layout.encode_broker(member), version, session),
            ]
        )
        self._lives[broker] = _BrokerLife(session, epoch, is_clean, off_line)
        self._undecided.add(broker)

    def _registration(self, broker: int, life: _BrokerLife) -> BrokerRegistered:
        logs: dict[TopicPartition, End] = {}
        for label, part in self._parts.items():
            if broker not in part.state.replicas or label in life.off_line:
                continue
            if not life.is_clean or broker in part.state.suspects:
                logs[label] = self._logs.setdefault(
                    (broker, label),
                    (self._rng.randint(0, part.state.leader_epoch), self._rng.randint(0, 9)),
                )
        return BrokerRegistered(
            broker,
            life.epoch,
            frozenset({"d"}),
            life.is_clean,
            logs,
            {},
            {MIN_ISR: "2"},
            life.off_line,
        )

    def _start(self) -> None:
        """Begin a life, mostly of a broker that is away."""
        away = [broker for broker in self._epochs if broker not in self._lives]
        broker = self._rng.choice(away or [*self._epochs])
        is_clean = broker not in self._doubted and self._rng.random() < 0.8
        if not is_clean:
            self._doubted.add(broker)  # Until a controller has decided on it.
            for key in [key for key in self._logs if key[0] == broker]:
                del self._logs[key]
        self._begin_life(broker, is_clean=is_clean)

    def _end(self) -> None:
        """End a life, or all of them in one moment."""
        chosen = [self._rng.choice([*self._epochs])]
        if self._rng.random() < 0.15:
            chosen = [*self._epochs]
        loses_power = self._rng.random() < 0.5
        for broker in chosen:
            life = self._lives.pop(broker, None)
            if life is not None:
                self._store.end_session(life.session)
                self._has_ended = True
                self._undecided.discard(broker)
                if loses_power:
                    self._doubted.add(broker)

    def _shut_down(self) -> None:
        if self._lives:
            broker = self._rng.choice([*self._lives])
            self._submit(BrokerShuttingDown(broker, self._lives[broker].epoch))

    def _fail(self) -> None:
        if self._lives:
            broker = self._rng.choice([*self._lives])
            labels = tuple(label for label in self._parts if self._rng.random() < 0.5)
            self._submit(DirectoryFailed(broker, labels))

    def _forget(self) -> None:
        away = [broker for broker in self._epochs if broker not in self._lives]
        if away:
            self._submit(ForgetBroker(self._rng.choice(away)))

    # --- topics

    def _topic(self) -> TopicImage | None:
        topics = [*self._image.topics.values()]
        return self._rng.choice(topics) if topics else None

    def _create(self) -> None:
        name, count = self._rng.choice(("a", "b", "c")), self._rng.choice((1, 2, 4))
        factor = self._rng.choice((1, 2, 3, 3))
        config = {
            MIN_ISR: self._rng.choice(("1", "2", "2", "3")),
            UNCLEAN: self._rng.choice(("true", "false", "false", "false")),
        }
        self._submit(CreateTopics((TopicToCreate(name, count, factor, config=config),)))

    def _grow(self) -> None:
        topic = self._topic()
        if topic is not None:
            self._submit(CreatePartitions(topic.name, len(topic.partitions) + 1))

    def _delete(self) -> None:
        topic = self._topic()
        if topic is not None:
            self._submit(DeleteTopic(topic.topic_id))

    def _confirm(self) -> None:
        ids = frozenset(one for one in self._gone if self._rng.random() < 0.6)
        if self._lives:
            self._submit(DeletionsConfirmed(self._rng.choice([*self._lives]), ids))

    def _change_rules(self) -> None:
        topic = self._topic()
        if topic is None:
            return
        values = {
            MIN_ISR: self._rng.choice(("1", "2", "3")),
            UNCLEAN: self._rng.choice(("true", "false", "false")),
        }
        changes = [ConfigChange(name, ConfigOperation.SET, text) for name, text in values.items()]
        self._submit(AlterTopicConfigs(topic.name, tuple(changes)))

    def _elect(self) -> None:
        self._submit(ElectLeaders(None, is_unclean=self._rng.random() < 0.2))

    # --- in-sync replicas

    def _ask(self) -> None:
        """Ask for an ISR as its leader does, or as one does that is wrong in something."""
        topic = self._topic()
        if topic is None:
            return
        number = self._rng.randrange(len(topic.partitions))
        state = topic.partitions[number]
        is_its = state.leader >= 0 and self._rng.random() < 0.95
        sender = state.leader if is_its else self._rng.choice([*self._epochs])
        drawn = [each for each in state.replicas if self._rng.random() < 0.7]
        members = tuple(
            IsrMember(each, self._epochs[each] - (self._rng.random() < 0.05))
            for each in dict.fromkeys([sender, *drawn] if self._rng.random() < 0.95 else drawn)
        )
        change = IsrChange(
            topic.topic_id,
            number,
            state.leader_epoch - (self._rng.random() < 0.05),
            state.partition_epoch - (self._rng.random() < 0.05),
            members,
        )
        sender_epoch = self._epochs.get(sender, 0) - (self._rng.random() < 0.03)
        event = AlterPartition(sender, sender_epoch, (change,))
        self._controller.read()
        wanted = may_be(self._image, event, change)
        reply = self._controller.decide(event, TopicId(int=1)).reply
        error = reply[0].error
        if (error is ErrorCode.none) != wanted:
            self.wrong.append(f"{topic.name}-{number} {state} is answered {error} to {event}")
        self._submit(event)
