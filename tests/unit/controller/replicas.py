"""A naive model of replicas under a controller: who holds which record, and what was acknowledged.

Brokers know a state of the partition that may be old, their logs are lists, a loss of power takes
the end of a log. The controller's decisions are the real ones. `check` says what must hold always.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ControllerDecision, ControllerEvent
from oncelog.controller.events import (
    AlterPartition,
    AlterReassignments,
    AlterTopicConfigs,
    BrokerRegistered,
    BrokersChanged,
    BrokerShuttingDown,
    DirectoryFailed,
    ElectLeaders,
    IsrChange,
    IsrMember,
    Reassignment,
    RemovedReplica,
    ReplicasRemoved,
)
from oncelog.controller.image import BrokerImage, PartitionImage
from tests.unit.controller.cluster import ID, MIN_ISR, T0, Metadata, broker, registration

Record = tuple[int, int]
"""The leader epoch in which it was appended, and a number of its own."""


@dataclass
class Replica:
    """A broker with its log. `known` is the state that it acts by; None before it may have one."""

    broker_id: int
    log: list[Record] = field(default_factory=list)
    synced_count: int = 0
    life: int = 0
    is_running: bool = False
    is_clean: bool = True
    is_decided: bool = False
    is_off_line: bool = False
    known: PartitionImage | None = None
    min_isr: int = 1
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each follower the offset that it last fetched at, and its life then."""
    asked: dict[int, int] = field(default_factory=dict)
    """Followers that the controller was asked to add, with their lives then."""
    begin: int = 0
    """The end of the log where the present epoch began."""
    high_watermark: int = 0

    @property
    def leads(self) -> PartitionImage | None:
        known = self.known
        if not self.is_running or known is None or self.is_off_line:
            return None
        return known if known.leader == self.broker_id else None


class Replicas:
    """Steps of one partition's replicas, drawn by a random source."""

    def __init__(self, rng: random.Random, count: int, min_isr: int, *, allows_unclean: bool):
        self.rng = rng
        self.trouble = rng.choice([0.2, 0.5, 1])
        """How often something fails, beside the other steps."""
        self.all = {number: Replica(number) for number in range(1, count + 1)}
        members = tuple(self.all)
        first = PartitionImage(1, 0, members, members)
        config = {MIN_ISR: str(min_isr)}
        if allows_unclean:
            config["unclean.leader.election.enable"] = "true"
        self.metadata = Metadata(first, live=(), config=config)
        self.acknowledged: dict[int, Record] = {}
        self.lost_epoch = -1
        """The newest leader epoch that began with a leader that may have lacked records."""
        self.led: dict[int, tuple[int, int]] = {}
        self.in_flight: list[tuple[int, int, ControllerEvent[Any]]] = []
        self.number = 0
        self.said: list[str] = []
        for one in self.all.values():
            self._start(one)
            one.known, one.min_isr, one.is_decided = self.state, min_isr, True
        self.in_flight.clear()

    @property
    def state(self) -> PartitionImage:
        return self.metadata.state

    def step(self) -> None:
        """One step of any kind that can be done now, and its checks."""
        weights = {
            self.produce: 6,
            self.fetch: 12,
            self.learn: 8,
            self.ask: 5,
            self.deliver: 6,
            self.sync: 1,
            self.brokers_change: 4,
            self.register: 3,
            self.kill: self.trouble,
            self.lose_power: self.trouble,
            self.end_session: self.trouble * 2,
            self.shut_down: self.trouble / 2,
            self.fail_directory: self.trouble / 5,
            self.change_min_isr: self.trouble / 2,
            self.prefer: self.trouble,
            self.reassign: self.trouble,
            self.confirm_removal: self.trouble / 2,
        }
        action: Callable[[], None] = self.rng.choices(list(weights), list(weights.values()))[0]
        action()
        self.check()

    # --- what brokers do

    def _any(self, *, running: bool | None = None) -> Replica | None:
        found = [one for one in self.all.values() if running in (None, one.is_running)]
        return self.rng.choice(found) if found else None

    def produce(self) -> None:
        """Somebody that believes to lead appends a record."""
        one = self._any(running=True)
        if one is None or one.leads is None:
            return
        self.number += 1
        one.log.append((one.leads.leader_epoch, self.number))
        self.say(f"{one.broker_id} appends {one.log[-1]} at {len(one.log) - 1}")
        self._commit(one)

    def fetch(self) -> None:
        """A follower takes all that the leader has which it knows, in the epoch that both know."""
        follower = self._any(running=True)
        if follower is None or follower.known is None or follower.is_off_line:
            return
        leader = self.all.get(follower.known.leader)
        if leader is None or leader.leads is None or leader is follower:
            return
        places = ({*leader.leads.replicas}, {*follower.known.replicas})
        if any(follower.broker_id not in replicas for replicas in places):
            return
        if leader.leads.leader_epoch != follower.known.leader_epoch:
            return
        pairs = zip(leader.log, follower.log, strict=False)
        same_count = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        follower.synced_count = min(follower.synced_count, same_count)
        # The offset of a fetch says what was appended before; the records come after it.
        follower.log = follower.log[:same_count]
        leader.ends[follower.broker_id] = (same_count, follower.life)
        self._commit(leader)
        follower.log += leader.log[same_count : same_count + self.rng.randint(0, 4)]
        self.say(f"{follower.broker_id} fetches of {leader.broker_id} at {same_count}")

    def _commit(self, leader: Replica) -> None:
        state = leader.leads
        if state is None or len(state.isr) < min(leader.min_isr, state.settled_count):
            return
        members = ({*state.isr, *leader.asked}) - {leader.broker_id}
        ends = [leader.ends.get(one, (0, 0))[0] for one in members]
        reached = min([len(leader.log), *ends])
        for offset in range(leader.high_watermark, reached):
            if state.leader_epoch > self.lost_epoch or offset not in self.acknowledged:
                self._acknowledge(leader, offset, state)
        leader.high_watermark = max(leader.high_watermark, reached)

    def _acknowledge(self, leader: Replica, offset: int, state: PartitionImage) -> None:
        if state.leader_epoch < self.lost_epoch:
            return  # It does not know of the unclean election: nothing is promised.
        record = leader.log[offset]
        self.say(f"{leader.broker_id} acknowledges {record} at {offset}")
        assert self.acknowledged.get(offset, record) == record, self.told()
        self.acknowledged[offset] = record

    def sync(self) -> None:
        one = self._any()
        assert one is not None
        one.synced_count = len(one.log)

    def learn(self) -> None:
        """A running broker takes the newest state and config, once its registration is decided."""
        one = self._any(running=True)
        if one is None or not self._is_decided(one):
            return
        state = self.state
        old = one.known
        one.min_isr = int(self.metadata.image.topics["t"].config[MIN_ISR])
        if old is not None and old.partition_epoch == state.partition_epoch:
            return
        one.known, one.asked = state, {}
        self.say(f"{one.broker_id} learns {state}")
        self._remove_log(one)
        if old is None or old.leader_epoch != state.leader_epoch:
            one.ends, one.begin = {}, len(one.log)
            one.high_watermark = min(one.high_watermark, len(one.log))
        if state.leader == one.broker_id and not one.is_off_line:
            begun = self.led.setdefault(state.leader_epoch, (one.broker_id, one.life))
            # A lone replica that stopped cleanly leads on.
            assert begun == (one.broker_id, one.life) or len(state.replicas) == 1, self.told()
            self._commit(one)

    def _remove_log(self, one: Replica) -> None:
        """A broker without a replica deletes its log, also when it starts."""
        if one.broker_id not in self.state.replicas:
            one.log, one.synced_count, one.high_watermark = [], 0, 0

    def _is_decided(self, one: Replica) -> bool:
        image = self.metadata.image.brokers.get(one.broker_id)
        return image is not None and image.broker_epoch == one.life and one.is_decided

    # --- what brokers ask the controller for

    def ask(self) -> None:
        """A leader asks for another ISR: without somebody, or with one that has caught up."""
        leader = self._any(running=True)
        if leader is None or leader.leads is None:
            return
        state = leader.leads
        lives = {one: leader.ends.get(one, (0, 0))[1] for one in state.isr}
        others = [one for one in state.isr if one != leader.broker_id]
        joining = [
            one
            for one, (end, _) in leader.ends.items()
            if one not in state.isr and end >= max(leader.high_watermark, leader.begin)
        ]
        if joining and (not others or self.rng.random() < 0.7):
            new = self.rng.choice(joining)
            lives[new] = leader.asked[new] = leader.ends[new][1]
        elif others:
            leaving = self.rng.sample(others, self.rng.randint(1, len(others)))
            for one in leaving:
                del lives[one]
        lives[leader.broker_id] = leader.life
        members = tuple(IsrMember(one, lives[one]) for one in sorted(lives))
        change = IsrChange(ID, 0, state.leader_epoch, state.partition_epoch, members)
        event = AlterPartition(leader.broker_id, leader.life, (change,))
        self.in_flight.append((leader.broker_id, leader.life, event))
        self.say(f"{leader.broker_id} asks for {members}")

    def deliver(self) -> None:
        """The controller decides on something that was sent, perhaps long ago."""
        if not self.in_flight:
            return
        index = self.rng.randrange(len(self.in_flight))
        sender_id, life, event = self.in_flight[index]
        if self.rng.random() < 0.8:
            self.in_flight.pop(index)  # Otherwise it is sent again: its answer was lost.
        self.submit(event)
        sender = self.all[sender_id]
        if isinstance(event, BrokerRegistered) and sender.life == life:
            image = self.metadata.image.brokers.get(sender_id)
            if sender.is_running and image is not None and image.broker_epoch == life:
                # From now on a folder's note may say that this life has all of its records.
                sender.is_decided = sender.is_clean = True

    # --- what happens to brokers

    def _start(self, one: Replica) -> None:
        one.life += 1
        one.is_running, one.is_decided = True, False
        one.known, one.asked, one.ends = None, {}, {}
        one.is_off_line = False
        self._remove_log(one)
        self._set(broker(one.broker_id, one.life, is_clean=one.is_clean))
        last_epoch = one.log[-1][0] if one.log else -1
        log = {T0: (last_epoch, len(one.log))}
        is_report = not one.is_clean or one.broker_id in self.state.suspects
        is_report = is_report and one.broker_id in self.state.replicas
        is_lone = len(self.state.replicas) == 1
        event = registration(
            one.broker_id,
            one.life,
            is_clean=one.is_clean,
            uncertain=log if is_report or (is_lone and not one.is_clean) else {},
        )
        self.in_flight.append((one.broker_id, one.life, event))
        self.say(f"{one.broker_id} registers {event}")

    def _set(self, *brokers: BrokerImage, gone: int | None = None) -> None:
        live = {**self.metadata.image.brokers, **{one.broker_id: one for one in brokers}}
        live.pop(gone or 0, None)
        self.metadata.live(*live.values())

    def kill(self) -> None:
        one = self._any(running=True)
        if one is not None:
            one.is_running = False
            self.say(f"{one.broker_id} is killed")

    def lose_power(self) -> None:
        """One machine, or all, lose what was not synced, or the end of it."""
        victims = [self._any()] if self.rng.random() < 0.7 else list(self.all.values())
        for one in victims:
            assert one is not None
            count = self.rng.randint(min(one.synced_count, len(one.log)), len(one.log))
            one.is_running, one.is_clean = False, False
            one.log = one.log[:count]
            self.say(f"{one.broker_id} loses power, {count} records are left")

    def end_session(self) -> None:
        """A session ends, perhaps of a broker that runs on."""
        one = self._any()
        assert one is not None
        if one.broker_id in self.metadata.image.brokers:
            self._set(gone=one.broker_id)
            self.say(f"the session of {one.broker_id} ends")

    def register(self) -> None:
        """A broker starts, also before its last session has ended; a zombie registers anew."""
        one = self._any()
        assert one is not None
        if not one.is_running or one.broker_id not in self.metadata.image.brokers:
            self._start(one)

    def shut_down(self) -> None:
        one = self._any(running=True)
        if one is not None and self._is_decided(one):
            self.submit(BrokerShuttingDown(one.broker_id, one.life))
            if self.rng.random() < 0.7:
                one.is_running = False
                self._set(gone=one.broker_id)

    def fail_directory(self) -> None:
        one = self._any(running=True)
        if one is not None and self._is_decided(one):
            one.is_off_line = True
            self.submit(DirectoryFailed(one.broker_id, (T0,)))

    # --- what the controller does by itself, or for an operator

    def brokers_change(self) -> None:
        self.submit(BrokersChanged())
        again = self.metadata.decide(BrokersChanged())
        assert again.writes == (), self.told()
        image, state = self.metadata.image, self.state
        assert state.leader == -1 or state.leader in image.brokers, self.told()
        able = {one.broker_id for one in image.brokers.values() if one.is_clean}
        able -= {one.broker_id for one in image.brokers.values() if one.is_shutting_down}
        may_lead = able & {*state.isr, *state.eligible} - {*state.offline_replicas}
        assert (state.leader != -1) or not may_lead, self.told()

    def change_min_isr(self) -> None:
        value = str(self.rng.randint(1, 2))
        self.submit(AlterTopicConfigs("t", (ConfigChange(MIN_ISR, ConfigOperation.SET, value),)))

    def prefer(self) -> None:
        self.submit(ElectLeaders((T0,)))

    def reassign(self) -> None:
        """Other replicas are asked for, also while some move, or that is cancelled."""
        count = self.rng.randint(1, len(self.all))
        wanted = tuple(self.rng.sample(list(self.all), count)) if self.rng.random() < 0.8 else None
        self.submit(AlterReassignments((Reassignment(T0, wanted),)))

    def confirm_removal(self) -> None:
        one = self._any(running=True)
        if one is not None and one.broker_id in self.state.removed and not one.log:
            removed = RemovedReplica(ID, 0, self.state.leader_epoch)
            self.submit(ReplicasRemoved(one.broker_id, (removed,)))

    def submit(self, event: ControllerEvent[Any]) -> None:
        """Write what is decided, or a part of it: then the next controller decides again."""
        decision = self.metadata.decide(event)
        count = len(decision.writes)
        if count > 1 and self.rng.random() < 0.2:
            part = decision.writes[: self.rng.randrange(count)]
            self._write(replace(decision, writes=part, notices=decision.notices if part else ()))
            self.submit(BrokersChanged())
            decision = self.metadata.decide(event)
        self._write(decision)
        self.said += [f"{event}: {self.state}"] if decision.writes else []

    def _write(self, decision: ControllerDecision[Any]) -> None:
        before = self.state
        self.metadata.write(decision.writes)
        self.metadata.notices += decision.notices
        self._compare(before)

    def _compare(self, before: PartitionImage) -> None:
        state = self.state
        assert state.leader_epoch >= before.leader_epoch, self.told()
        if state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch, self.told()
        # Who has removed a folder concerns no leader.
        is_same = replace(state, removed=()) == replace(before, removed=())
        assert is_same == (state.partition_epoch == before.partition_epoch), self.told()
        if state.leader not in (-1, before.leader) or (
            state.leader != -1 and state.leader_epoch > before.leader_epoch
        ):
            self._elected(before, state)

    def _elected(self, before: PartitionImage, state: PartitionImage) -> None:
        """A leader that may lack records is said; any other has what was acknowledged."""
        leader = self.all[state.leader]
        is_lone = {*state.replicas} == {*before.replicas} == {*before.isr, *before.eligible}
        is_lone = is_lone and len(state.replicas) == 1
        warned = any("acknowledged records" in text for text in self.metadata.warnings())
        self.metadata.notices.clear()
        if warned or is_lone:
            self.lost_epoch = state.leader_epoch
            self.acknowledged = {
                offset: record
                for offset, record in self.acknowledged.items()
                if leader.log[offset : offset + 1] == [record]
            }

    def check(self) -> None:
        """Everybody that may lead without a warning has all that was acknowledged."""
        state = self.state
        for number in {*state.isr, *state.eligible}:
            one = self.all[number]
            if not one.is_clean:
                continue  # It says so when it registers, and is taken out.
            for offset, record in self.acknowledged.items():
                assert one.log[offset : offset + 1] == [record], self.told(
                    f"{number} lacks {record} at {offset}"
                )

    def say(self, text: str) -> None:
        self.said.append(text)

    def told(self, what: str = "") -> str:
        return "\n".join([*self.said[-60:], str(self.state), what])
