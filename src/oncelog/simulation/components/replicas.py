"""Simulates the replicas of one partition: their role machines, and logs that are lists.

One broker has no followers, so its own run never asks the role machine (`oncelog.replication`) most
of what it decides. Here one to four of them are told drawn sequences of appends, fetches, lost
answers, elections, changes of the ISR and of `min.insync.replicas`, deaths and failures, late and
twice. Each is compared with `ExpectedReplica` after every step, and the logs with INV-1 and INV-7.

The controller and the fetching are the simulation's own, as plain as possible. Brokers learn of
each state of the partition at any time later. What a leader asks of the controller arrives late,
twice or never, and is refused when the state, or a life of the two brokers, has ended since.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

from oncelog.core.errors import ErrorCode, InvariantViolation
from oncelog.core.ids import TopicId
from oncelog.replication.divergence import truncation_offset
from oncelog.replication.follower import FollowerState
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import Assignment, OfflineState, ReplicaState
from oncelog.replication.roles import assign, fail, resign
from oncelog.simulation.components.replica_model import ExpectedReplica

__all__ = ["Rules", "SimulatedReplicas", "replicas"]

LIVES_COUNT: Final = 5
STEPS_COUNT: Final = 200
"""Together some 3 ms of work."""
TOPIC_ID: Final = TopicId(int=1)
NONE: Final = -1
LAG_MAX: Final = 30
"""In steps, which are this simulation's time."""
_WEIGHTS: Final = {"append": 12.0, "fetch": 30.0, "hear": 25.0, "start": 8.0, "join the ISR": 5.0}
"""How much more often than the other steps each is taken."""
Record = tuple[int, int]
"""The leader epoch that wrote it, and its number."""


class Rules(NamedTuple):
    """The rules on trial; tests plant others."""

    assign: Callable[..., ReplicaState] = assign
    truncation_offset: Callable[..., int] = truncation_offset


def replicas(rng: random.Random, rules: Rules | None = None) -> Iterator[str]:
    """Simulate some lives of a partition; yield what is wrong at the first step that is."""
    for life in range(LIVES_COUNT):
        cluster = SimulatedReplicas(rng, rules or Rules())
        for number in range(STEPS_COUNT):
            name = cluster.step()
            if cluster.wrong:
                where = f"life {life}, step {number}, {name}"
                yield from (f"{where}: {text}" for text in cluster.wrong)
                return


@dataclass(slots=True)
class _Replica:
    """One broker. `machine` and `expected` are None while it is dead; the log outlives it."""

    id: int
    machine: ReplicaState | None = None
    expected: ExpectedReplica | None = None
    records: list[Record] = field(default_factory=list)
    feed: deque[Assignment] = field(default_factory=deque)
    """What the controller wrote and it was not told yet."""
    taken: list[Assignment] = field(default_factory=list)
    checkpoint: int = 0
    life: int = 0
    """How often it has started: its broker epoch."""

    @property
    def last_epoch(self) -> int:
        return self.records[-1][0] if self.records else NONE

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above it, and where that ended (KIP-101)."""
        ends = [(own, at + 1) for at, (own, _) in enumerate(self.records) if own <= epoch]
        return ends[-1] if ends else (NONE, 0)

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The epochs in the log, with the offsets where they begin."""
        epochs = [epoch for epoch, _ in self.records]
        return [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]


class _Ask(NamedTuple):
    """A leader's request to the controller to add a follower to the ISR (AlterPartition)."""

    leader: int
    follower: int
    leader_life: int
    follower_life: int
    leader_epoch: int
    partition_epoch: int


class SimulatedReplicas:
    """The brokers of one partition, and a controller."""

    def __init__(self, rng: random.Random, rules: Rules) -> None:
        self._rng = rng
        self._rules = rules
        self._now = 0
        count = rng.choice((1, 2, 3, 3, 4))
        self._brokers = [_Replica(index) for index in range(count)]
        self._may_be_unclean = rng.random() < 0.15
        self._numbers = 0
        self.committed: list[Record] = []
        """All records that any high watermark has passed."""
        self._asked: list[_Ask] = []
        """Requests under way to the controller, also those that it has had once."""
        order = list(range(count))
        rng.shuffle(order)
        self._state = Assignment(
            order[0], 0, frozenset(order), tuple(order), rng.choice((1, 1, 2, 2, 3, 9))
        )
        self.wrong: list[str] = []
        self._steps: dict[str, Callable[[], None]] = {
            "append": self._append,
            "fetch": self._fetch,
            "hear": self._hear,
            "hear again": self._hear_again,
            "sync": self._sync,
            "elect": self._elect,
            "elect the same": self._elect_the_same,
            "leave the ISR": self._leave_isr,
            "join the ISR": self._join_isr,
            "another min.insync.replicas": self._change_minimum,
            "die": self._die,
            "start": self._start_one,
            "move": self._move,
            "fail": self._fail,
            "note a checkpoint": self._checkpoint,
            "begin again": self._begin_again,
            "fetch what is refused": self._misuse,
        }
        self._names = list(self._steps)
        weights = [_WEIGHTS.get(name, 1.0) * rng.choice((0.2, 1.0, 1.0)) for name in self._names]
        self._weights = list(accumulate(weights))
        for broker in self._brokers:
            self._start(broker)

    def step(self) -> str:
        """Do one thing; return its name."""
        self._now += 1
        name = self._rng.choices(self._names, cum_weights=self._weights)[0]
        try:
            self._steps[name]()
        except InvariantViolation as violation:
            self.wrong.append(f"the machine refuses it: {violation}")
        return name

    # --- comparing

    def _same(self, what: str, held: object, implied: object) -> None:
        if held != implied:
            self.wrong.append(f"{what} is {held}, by what it was told {implied}")

    def _look_at(self, broker: _Replica) -> None:
        """Compare a machine with what it was told, and its committed records with all others'."""
        machine, expected = broker.machine, broker.expected
        if machine is None or expected is None:
            return
        self.wrong += (f"replica {broker.id}: {text}" for text in expected.compare(machine))
        for epoch in (NONE, machine.leader_epoch, self._rng.randint(0, self._state.leader_epoch)):
            self._same(
                f"replica {broker.id}: the error for epoch {epoch}",
                machine.leader_error(epoch),
                expected.error(epoch),
            )
        if isinstance(machine, LeaderState):
            implied = expected.lagging(self._now, LAG_MAX)
            self._same("who lags", machine.lagging(self._now, LAG_MAX), implied)
        committed = broker.records[: machine.high_watermark]
        if machine.high_watermark > len(broker.records):
            self.wrong.append(f"INV-7: replica {broker.id} has committed more than there is")
        known = self.committed[: len(committed)]
        if committed[: len(known)] != known:
            self.wrong.append(f"INV-1: replica {broker.id} has committed other records")
        elif len(committed) > len(known):
            if not machine.is_leader:
                self.wrong.append(f"INV-7: replica {broker.id} is ahead of every leader")
            self.committed = committed

    # --- steps of one broker

    def _one(self) -> _Replica:
        return self._rng.choice(self._brokers)

    def _of(self, broker_id: int) -> _Replica | None:
        return self._brokers[broker_id] if 0 <= broker_id < len(self._brokers) else None

    def _append(self) -> None:
        """Append at a broker that believes to lead, the one that does most often."""
        broker = self._of(self._state.leader) if self._rng.random() < 0.8 else self._one()
        if broker is None or broker.machine is None or broker.expected is None:
            return
        machine, needs_all = broker.machine, self._rng.random() < 0.6
        lacks_replicas = needs_all and not machine.has_enough_replicas
        if machine.leader_error() is not ErrorCode.none or lacks_replicas:
            return
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            self._numbers += 1
            broker.records.append((machine.leader_epoch, self._numbers))
        if self._rng.random() < 0.7:
            self._tell_end(broker)

    def _tell_end(self, broker: _Replica) -> None:
        machine, expected = broker.machine, broker.expected
        if machine is None or expected is None:
            return
        end = len(broker.records)
        moved = machine.local_end_moved(end)
        self._same("whether the high watermark moved", moved, expected.reach(end))
        self._look_at(broker)

    def _sync(self) -> None:
        """Tell a machine of what was appended to its log."""
        self._tell_end(self._one())

    def _hear(self) -> None:
        broker = self._one()
        if broker.machine is not None and broker.feed:
            self._take(broker, broker.feed.popleft())

    def _hear_again(self) -> None:
        """Hear something a second time, and late."""
        broker = self._one()
        if broker.machine is None or not broker.taken:
            return
        self._take(broker, self._rng.choice(broker.taken[-3:]))

    def _take(self, broker: _Replica, given: Assignment) -> None:
        machine, expected = broker.machine, broker.expected
        if machine is None or expected is None:
            return
        end = len(broker.records)
        broker.machine = self._rules.assign(machine, given, log_end_offset=end, now_ms=self._now)
        taken = expected.assign(given, end, self._now)
        self._same("whether it is taken", broker.machine is not machine, taken)
        if taken:
            broker.taken.append(given)
        self._look_at(broker)

    def _move(self) -> None:
        """Stop serving while the log moves to another folder, then follow the controller again."""
        broker = self._one()
        if broker.machine is None or broker.expected is None or broker.expected.is_failed:
            return
        broker.machine = resign(broker.machine)
        broker.expected.stop()
        self._look_at(broker)
        if self._rng.random() < 0.5:
            self._leave_isr()
        if self._rng.random() < 0.5:
            broker.feed.clear()
            self._take(broker, self._state)
        else:
            broker.feed.append(self._state)

    def _fail(self) -> None:
        broker = self._one()
        if broker.machine is not None and broker.expected is not None and self._rng.random() < 0.3:
            broker.machine = fail(broker.machine)
            broker.expected.stop(failed=True)
            self._look_at(broker)

    def _checkpoint(self) -> None:
        for broker in self._brokers:
            if broker.machine is not None:
                broker.checkpoint = broker.machine.high_watermark

    def _die(self) -> None:
        """Die; one outside the ISR may have lost the end of its log, which harms no other."""
        broker = self._one()
        broker.machine = broker.expected = None
        broker.feed.clear()
        broker.taken.clear()
        if broker.id not in self._state.isr and self._rng.random() < 0.5:
            del broker.records[self._rng.randint(0, len(broker.records)) :]

    def _start_one(self) -> None:
        broker = self._one()
        if broker.machine is None or broker.machine.is_failed:
            self._start(broker)
            if broker.id == self._state.leader and self._rng.random() < 0.5:
                self._lead(broker.id, self._state.isr)

    def _start(self, broker: _Replica) -> None:
        end = len(broker.records)
        if self._rng.random() < 0.2:  # The rest counts once it is synced.
            end = self._rng.randint(min(broker.checkpoint, end), end)
        broker.life += 1
        broker.machine = OfflineState.unassigned(
            broker.id, TOPIC_ID, log_end_offset=end, high_watermark=broker.checkpoint
        )
        broker.expected = ExpectedReplica(broker.id, end, sorted((end, broker.checkpoint))[0])
        broker.feed.clear()
        broker.feed.append(self._state)
        self._look_at(broker)

    def _begin_again(self) -> None:
        """Cut the log of one outside the ISR, as a replica does that was away for too long."""
        broker = self._one()
        expected = broker.expected
        if expected is None or not expected.is_follower or broker.id in self._state.isr:
            return
        broker.life += 1
        self._truncate(broker, self._rng.randint(0, len(broker.records)))

    # --- replication

    def _fetch(self) -> None:
        """Let one replica fetch from the leader that it knows of."""
        follower = self._one()
        if follower.machine is None or follower.expected is None:
            return
        given = follower.expected.assigned
        leader = self._of(given.leader) if given is not None else None
        if (
            given is None
            or leader is None
            or leader is follower
            or not follower.expected.is_follower
            or leader.machine is None
            or leader.expected is None
        ):
            return
        error = leader.machine.leader_error(given.leader_epoch)
        self._same("the error of a fetch", error, leader.expected.error(given.leader_epoch))
        if error is not ErrorCode.none:
            return
        epoch, end = leader.end_of_epoch(follower.last_epoch)
        offset = len(follower.records)
        if epoch < follower.last_epoch or end < offset:
            leader.machine.diverged(follower.id)
            leader.expected.diverged(follower.id, self._now)
            cut = self._rules.truncation_offset(epoch, end, follower.epochs, offset)
            if cut >= offset:
                self.wrong.append(f"replica {follower.id} would ask the same for ever")
            self._truncate(follower, cut)
            return
        visit = offset, len(leader.records), self._now
        error = self._visit(leader, follower.id, visit)
        if error is not ErrorCode.none:
            return
        if isinstance(leader.machine, LeaderState):
            self._may_join(leader, leader.machine, follower)
        if self._rng.random() < 0.1:
            return  # The answer is lost.
        follower.records += leader.records[offset : offset + 4]
        self._tell_end(follower)
        assert isinstance(follower.machine, FollowerState)
        high_watermark = leader.machine.high_watermark
        moved = follower.machine.leader_high_watermark(high_watermark)
        self._same("whether it learns", moved, follower.expected.learn(high_watermark))
        self._look_at(follower)

    def _visit(self, leader: _Replica, follower: int, visit: tuple[int, int, int]) -> ErrorCode:
        """Let a leader hear of a fetch; returns its answer."""
        if leader.machine is None or leader.expected is None:
            return ErrorCode.none
        offset, log_end, now = visit
        life = self._brokers[follower].life if follower < len(self._brokers) else NONE
        error = leader.machine.follower_fetched(
            follower, offset, log_end_offset=log_end, now_ms=now, broker_epoch=life
        )
        self._same("the error of a fetch", error, leader.expected.fetch(follower, visit))
        self._look_at(leader)
        return error

    def _may_join(self, leader: _Replica, machine: LeaderState, follower: _Replica) -> None:
        """The leader asks for an ISR with one that has its committed records, if it likes."""
        if leader.expected is None:
            return
        may = machine.may_join(follower.id, len(follower.records))
        implied = leader.expected.may_join(follower.id, len(follower.records))
        self._same("whether it may join", may, implied)
        if may and self._rng.random() < 0.5:
            epochs = machine.leader_epoch, machine.partition_epoch
            self._asked.append(_Ask(leader.id, follower.id, leader.life, follower.life, *epochs))
            machine.ask(((follower.id, follower.life),))
            leader.expected.join(follower.id)
            self._look_at(leader)

    def _truncate(self, follower: _Replica, end: int) -> None:
        if not isinstance(follower.machine, FollowerState) or follower.expected is None:
            return
        del follower.records[end:]
        follower.machine.truncated(end)
        follower.expected.cut(end)
        self._look_at(follower)

    # --- the controller

    def _write(self, state: Assignment) -> None:
        """Tell all brokers of a new state of the partition, in order."""
        self._state = replace(state, partition_epoch=self._state.partition_epoch + 1)
        for broker in self._brokers:
            if broker.machine is not None:
                broker.feed.append(self._state)

    def _is_alive(self, broker_id: int) -> bool:
        machine = self._brokers[broker_id].machine
        return machine is not None and not machine.is_failed

    def _elect(self) -> None:
        """Elect another leader, or the same one again, from those that live and are in the ISR."""
        state = self._state
        alive = [each for each in state.replicas if self._is_alive(each)]
        clean = [each for each in alive if each in state.isr]
        is_due = state.leader == NONE or state.leader not in clean
        if not is_due and self._rng.random() < 0.7:
            return
        if clean:
            self._lead(self._rng.choice(clean), frozenset(clean))
        elif self._may_be_unclean and alive:
            chosen = self._rng.choice(alive)
            self._lead(chosen, frozenset({chosen}), is_clean=False)
        elif state.leader != NONE:
            self._write(replace(state, leader=NONE, leader_epoch=state.leader_epoch + 1))

    def _elect_the_same(self) -> None:
        """Let the leader begin a new epoch, often without some that were in its ISR."""
        state = self._state
        if state.leader != NONE and self._is_alive(state.leader):
            isr = {each for each in sorted(state.isr) if self._rng.random() < 0.6}
            self._lead(state.leader, frozenset({*isr, state.leader}))

    def _lead(self, leader: int, isr: frozenset[int], *, is_clean: bool = True) -> None:
        records = self._brokers[leader].records
        if not is_clean:
            # What it does not have is lost; what others know of it may be wrong until they fetch.
            raise_to = min(len(records), len(self.committed))
            self._lose_the_rest(records[:raise_to])
        elif records[: len(self.committed)] != self.committed:
            self.wrong.append(f"INV-1: the new leader {leader} lacks committed records")
        epoch = self._state.leader_epoch + 1
        self._write(replace(self._state, leader=leader, leader_epoch=epoch, isr=isr))
        # An old leader that is alone in its ISR would go on committing until it learns of this one.
        for broker in self._brokers if not is_clean else ():
            while broker.machine is not None and broker.feed:
                self._take(broker, broker.feed.popleft())

    def _lose_the_rest(self, committed: list[Record]) -> None:
        """An unclean election: replicas that know of other records start again, without a log."""
        self.committed = committed
        for broker in self._brokers:
            if broker.records[: len(committed)] != committed or broker.machine is None:
                broker.records = committed.copy()
            del broker.records[len(committed) :]
            broker.checkpoint = min(broker.checkpoint, len(committed))
            if broker.machine is not None:
                self._start(broker)

    def _leave_isr(self) -> None:
        """The leader asks for an ISR without one that has not caught up for long."""
        state = self._state
        others = sorted(state.isr - {state.leader})
        if state.leader != NONE and others:
            left = state.isr - {self._rng.choice(others)}
            self._write(replace(state, isr=left))

    def _join_isr(self) -> None:
        """Carry out what a leader has asked, or refuse it; it may come again, or never."""
        if not self._asked:
            return
        ask = self._rng.choice(self._asked)
        if self._rng.random() < 0.5:
            self._asked.remove(ask)
        state = self._state
        leader, follower = self._brokers[ask.leader], self._brokers[ask.follower]
        present = leader.life, follower.life, state.leader_epoch, state.partition_epoch
        may = ask[2:] == present and self._is_alive(follower.id)
        if may and self._rng.random() < 0.8:
            self._write(replace(state, isr=state.isr | {follower.id}))

    def _change_minimum(self) -> None:
        self._write(replace(self._state, min_insync_replicas=self._rng.choice((1, 2, 3, 9))))

    # --- what must be refused

    def _misuse(self) -> None:
        """Let one hear of fetches that it must refuse, and be as it was."""
        broker = self._one()
        end = len(broker.records)
        for follower in (99, broker.id, self._one().id):
            self._visit(broker, follower, (end + 1, end, self._now))
        if isinstance(broker.machine, LeaderState) and broker.machine.may_join(99, end):
            self.wrong.append("who is no replica may join the ISR")
