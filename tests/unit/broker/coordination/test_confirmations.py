"""Replies without an append: where another broker may lead they wait until they are confirmed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator.shard import Decision, EventContext, replies_to
from oncelog.core.cluster_limits import CONFIRMATION_WAIT_MS_MAX
from oncelog.core.errors import ErrorCode
from oncelog.replication.leader import LeaderState
from tests.fuzz.virtual import VirtualLoop
from tests.unit.broker.coordination.test_runtime import OTHER, Bench, Memory, Put
from tests.unit.broker.support import ME, assignment

READ = b"read"
"""The key of an event that is answered by what was applied, and appends nothing."""


class Reader(Memory):
    def decide(self, event: Put, context: EventContext) -> Decision[Put, object, str]:
        if event.key != READ:
            return super().decide(event, context)
        return Decision(replies=replies_to(context.token, tuple(self.applied)))


class ReadBench(Bench):
    """A shard that answers questions, on a partition with a follower."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = (ME, OTHER)) -> None:
        super().__init__(folder, isr)
        self.follow()

    def _make(self, _partition: Partition) -> Memory:
        self.machines.append(Reader())
        return self.machines[-1]

    def read(self) -> Any:
        return self.ask(Put("id", READ))

    def confirm(self) -> None:
        """The follower is answered, and fetches once more what it has not got yet."""
        state = self.partition.state
        assert isinstance(state, LeaderState)
        end = state.followers[OTHER].end_offset
        self.partition.follower_fetched(OTHER, end, 0, confirmed_round=state.carry_round())

    def ask(self, event: Put) -> Any:
        return self.runtime.ask("id", event, lambda reply: reply, lambda error: ("no", error))

    def commit(self) -> None:
        """The follower fetches what it has not got yet."""
        self.partition.follower_fetched(OTHER, self.partition.log.log_end_offset, 0)


async def test_a_lone_replica_answers_a_question_within_the_call(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path, (ME,))
    assert bench.read().result == ()


async def test_a_reply_without_an_append_waits_until_it_is_confirmed(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    answer = bench.read()
    bench.commit()
    assert not answer.done, "that fetch may have been sent before the request came"
    bench.confirm()
    assert answer.response() == ()


async def test_one_round_confirms_all_that_wait(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    answers = [bench.read() for _ in range(3)]
    bench.confirm()
    assert [answer.done for answer in answers] == [True] * 3


async def test_a_reply_to_an_append_is_confirmed_by_its_commit(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    answer = bench.ask(Put("id", b"a"))
    bench.commit()
    assert answer.response() == b"a"


async def test_what_is_decided_once_a_transition_is_over_is_confirmed_too(tmp_path: Path) -> None:
    """The commit it waited for shows that this broker led before the request came, no more."""
    bench = ReadBench(tmp_path)
    bench.ask(Put("id", b"a"))
    answer = bench.read()
    bench.commit()
    assert not answer.done
    bench.confirm()
    assert answer.response() == (b"a",)


async def test_who_waits_learns_of_a_lost_leadership_and_nothing_else(tmp_path: Path) -> None:
    """D7: the client asks the next coordinator; here nothing durable has happened."""
    bench = ReadBench(tmp_path)
    held, parked = bench.read(), bench.ask(Put("id", b"a"))
    behind = bench.read()
    bench.partition.assign(assignment((OTHER,), (ME, OTHER), leader=OTHER, epoch=1), 0)
    bench.follow()
    refused = ("no", ErrorCode.not_coordinator)
    assert held.response() == refused
    assert (parked.result, behind.result) == (ErrorCode.not_coordinator,) * 2
    assert bench.machines[0].applied == []


async def test_all_replies_that_one_commit_let_go_learn_of_a_lost_leadership(
    tmp_path: Path,
) -> None:
    bench = ReadBench(tmp_path)
    bench.ask(Put("id", b"a"))
    behind = [bench.read() for _ in range(3)]
    bench.commit()
    bench.partition.assign(assignment((OTHER,), (ME, OTHER), leader=OTHER, epoch=1), 0)
    refused = ("no", ErrorCode.not_coordinator)
    assert [answer.response() for answer in behind] == [refused] * 3


async def test_a_leadership_in_another_epoch_confirms_nothing_of_the_last(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    held = bench.read()
    bench.partition.assign(assignment((ME, OTHER), epoch=2), 0)
    assert held.response() == ("no", ErrorCode.not_coordinator)


async def test_nothing_is_told_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    """Who has left the ISR may lead by now."""
    bench = ReadBench(tmp_path)
    before = bench.read()
    bench.partition.state.has_enough_replicas = False
    unavailable = ("no", ErrorCode.coordinator_not_available)
    assert bench.read().response() == unavailable
    bench.partition.state.has_enough_replicas = True
    bench.confirm()
    assert before.done


async def test_an_isr_of_one_is_confirmed_at_once(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    bench.partition.assign(assignment((ME,), (ME, OTHER), epoch=1), 0)
    bench.follow()
    await bench.runtime.loaded()
    assert bench.read().response() == ()


async def test_the_error_of_an_append_waits_for_no_confirmation(tmp_path: Path) -> None:
    """It is no answer by the state, and what failed may be why nothing is confirmed."""
    bench = ReadBench(tmp_path)
    bench.partition.state.has_enough_replicas = False
    assert bench.ask(Put("id", b"a")).response() == ErrorCode.not_enough_replicas


async def test_an_answer_whose_connection_has_closed_harms_nobody(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    gone, answer = bench.read(), bench.read()
    gone.drop()
    bench.confirm()
    assert not gone.done
    assert answer.done


async def test_every_shard_that_is_asked_has_to_be_confirmed(tmp_path: Path) -> None:
    bench = ReadBench(tmp_path)
    (answer,) = bench.runtime.ask_all(Put("id", READ), lambda error: ("no", error))
    assert not answer.done
    bench.partition.resign(ErrorCode.not_leader_or_follower)
    assert answer.response() == ("no", ErrorCode.not_coordinator)


def test_who_is_not_confirmed_in_time_may_ask_again(tmp_path: Path) -> None:
    async def story() -> None:
        bench = ReadBench(tmp_path)
        answer = bench.read()
        await asyncio.sleep(CONFIRMATION_WAIT_MS_MAX / 1000 - 0.001)
        assert not answer.done
        await asyncio.sleep(0.002)
        assert answer.response() == ("no", ErrorCode.coordinator_not_available)
        bench.confirm()
        again = bench.read()
        bench.confirm()
        assert again.response() == ()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_what_was_confirmed_at_once_does_not_expire_later(tmp_path: Path) -> None:
    async def story() -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, found: bugs.append(found))
        bench = ReadBench(tmp_path)
        bench.partition.state.has_enough_replicas = False
        assert bench.read().response() == ("no", ErrorCode.coordinator_not_available)
        await asyncio.sleep(CONFIRMATION_WAIT_MS_MAX / 1000 + 1)
        assert bugs == []

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
