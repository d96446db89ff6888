"""Random members of both protocols join, stall, crash, leave and unsubscribe in virtual time.

Whatever they do, no partition is owned by two of them (INV-8), the group comes back from its log at
any moment, and once everybody is calm it settles: each partition has the one owner that the target
names.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, require
from oncelog.group.consumer.group import ConsumerGroupState
from oncelog.group.consumer.members import TopicIdPartition
from oncelog.group.consumer.settings import ConsumerGroupConfig
from tests.unit.group.consumer.world import AnyClient, ClassicClient, Client, FakeTopics, World

STEPS_COUNT = 60
TOPICS = ("t", "u", "v")


class Life:
    """A world with clients that come and go by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        interval_ms = self.random.choice((0, 1_000, 8_000))
        counts = {name: self.random.randint(0, 5) for name in TOPICS}
        self.world = World(
            FakeTopics(counts), ConsumerGroupConfig(assignment_interval_ms=interval_ms)
        )
        self.clients: list[AnyClient] = []
        self.silent: list[AnyClient] = []
        """Crashed or stalled: the coordinator does not know yet, and they may come back."""
        self._next_id = 0

    def step(self) -> None:
        often = (self.beat, self.follow) * 3
        seldom = (self.join, self.wait, self.lose, self.leave, self.crash, self.stall, self.wake)
        others = (self.change, self.alter, self.restart, self.static_restart)
        move = self.random.choice((*often, *seldom, *others))
        move()
        self.check()

    def check(self) -> None:
        """INV-8, as the coordinator has it and as the clients do."""
        owned: list[TopicIdPartition] = []
        for member in self.world.group.members.values():
            owned += [*member.assigned, *member.pending_revocation]
        require(len(owned) == len(set(owned)), "two members own a partition (INV-8)")
        require(set(owned) == set(self.world.group.owners), "the owners are the members'")
        members = self.world.group.members
        # A client that was taken out for its silence does not know, as it cannot.
        used = [
            tp for c in [*self.clients, *self.silent] if c.member_id in members for tp in c.owned
        ]
        require(len(used) == len(set(used)), "two clients use a partition (INV-8)")

    def some(self) -> AnyClient | None:
        return self.random.choice(self.clients) if self.clients else None

    def join(self) -> None:
        if len(self.clients) + len(self.silent) < 6:
            self._next_id += 1
            made = self._new_client()
            self.clients.append(made)
            self.world.turn(made)

    def _new_client(self) -> AnyClient:
        if self.random.random() < 0.3:
            return ClassicClient(f"m{self._next_id}", self._names())
        static = f"i{self._next_id}" if self.random.random() < 0.3 else None
        made = Client(f"m{self._next_id}", instance_id=static)
        made.rebalance_timeout_ms = self.random.choice((7_000, 300_000))
        self._choose(made)
        return made

    def _names(self) -> frozenset[str]:
        return frozenset(self.random.sample(TOPICS, self.random.randint(0, 3)))

    def _choose(self, client: AnyClient) -> None:
        client.topic_names = self._names()
        if isinstance(client, ClassicClient):
            client.must_join = True
            return
        client.topic_regex = self.random.choice(("", "", "", "[tu]", "v.*"))
        client.server_assignor = self.random.choice((None, "range", "uniform"))
        client.must_say_all = True

    def beat(self) -> None:
        client = self.some()
        if client is not None:
            self.world.turn(client)

    def lose(self) -> None:
        client = self.some()
        if isinstance(client, Client):
            self.world.beat(client, lose_answer=True)

    def follow(self) -> None:
        client = self.some()
        if client is not None:
            client.follow()

    def wait(self) -> None:
        """Time passes. Live clients go on with their heartbeats meanwhile, as far as they can."""
        for _ in range(self.random.randint(1, 4)):
            self.world.pass_time(self.random.randint(1_000, 10_000))
            for client in self.random.sample(self.clients, len(self.clients)):
                if self.random.random() < 0.8:
                    self.world.turn(client)

    def leave(self) -> None:
        client = self.some()
        if client is not None:
            self.clients.remove(client)
            if isinstance(client, Client):
                self.world.leave(client)
            elif client.member_id in self.world.group.members:
                self.world.remove(client.member_id)

    def crash(self) -> None:
        client = self.some()
        if client is not None:
            self.clients.remove(client)
            client.abandon()

    def stall(self) -> None:
        client = self.some()
        if client is not None:
            self.clients.remove(client)
            self.silent.append(client)

    def wake(self) -> None:
        if self.silent:
            client = self.silent.pop()
            self.clients.append(client)
            self.world.turn(client)

    def change(self) -> None:
        client = self.some()
        if client is not None:
            self._choose(client)

    def alter(self) -> None:
        """A topic gets partitions, is deleted, or made."""
        name = self.random.choice(TOPICS)
        topic = self.world.topics.find(name)
        if topic is not None and self.random.random() < 0.2:
            self.world.topics = self.world.topics.without(name)
        else:
            count = topic.partition_count + 1 if topic is not None else 2
            self.world.topics = self.world.topics.with_counts(**{name: min(count, 8)})

    def restart(self) -> None:
        self.world.restart()

    def static_restart(self) -> None:
        """A static member's process stops for now, and another comes in its place."""
        client = next((each for each in self.clients if each.instance_id is not None), None)
        if not isinstance(client, Client):
            return
        self.clients.remove(client)
        self.world.leave(client, for_now=True)
        self._next_id += 1
        again = Client(f"m{self._next_id}", instance_id=client.instance_id)
        self._choose(again)
        self.clients.append(again)
        if self.random.random() < 0.5:
            self.world.beat(again)

    def calm_down(self) -> None:
        """Nobody comes or goes any more; everybody answers."""
        self.clients += self.silent
        self.silent.clear()
        if self.clients:
            self.world.settle(self.clients)
            self.check()
            require(
                all(client.error is ErrorCode.none for client in self.clients), "nobody is fenced"
            )
            assert self.world.group.state is ConsumerGroupState.STABLE
        else:
            self.world.pass_time(120_000)
            assert self.world.group.state is ConsumerGroupState.EMPTY


def live(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS_COUNT):
        life.step()
    life.calm_down()


@given(st.integers(0, 2**32))
def test_partitions_have_one_owner_and_the_group_settles(seed: int) -> None:
    live(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_lives_settle(seed: int) -> None:
    for each in range(1_000):
        live(seed * 1_000 + each)
