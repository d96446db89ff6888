"""What happens to an exact classic group: members come, change, misuse it, fall silent and go.

Each act begins and ends while the group is stable or empty and every answer is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import sync_group
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_classic import ExactClassicGroup
from oncelog.simulation.peers.exact_classic_view import INSTANCE_MIN, Join, Person
from oncelog.simulation.peers.exact_offsets import ALONE, Who
from oncelog.simulation.peers.scene import SLACK_MS, UnsureError

__all__ = ["ClassicScene"]

_MEMBERS_MAX: Final = 3
_HASTY_CHANCE: Final = 0.35
_SHORT_MS: Final = 700
"""A session or rebalance timeout that a scene waits for."""
_EARLY_MS: Final = 25.0
"""How long before its end a timeout is looked at."""
_SKIP_MIN: Final = 9

Joins = dict[Person, "asyncio.Task[Join]"]


class ClassicScene(ExactClassicGroup):
    """Plays a few acts with one group, then takes it down. Parameter: `acts` (4).

    In a hasty group a rebalance waits for its members for a short time only.
    """

    def __init__(self, context: ClientContext, group_id: str) -> None:
        super().__init__(context, group_id)
        self._is_hasty = self.rng.random() < _HASTY_CHANCE
        if self._is_hasty:
            self.rebalance_ms, self.join_min = _SHORT_MS, 1
        self._acts: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._grow, self._grow, self._go, self._change, self._restart_static),
            *(self._misuse, self._misuse, self._use_offsets, self._use_offsets),
            *(self._fall_silent, self._stay_away, self._ask_for_an_id, self._wait),
        )

    async def play(self) -> None:
        """Play the scene. Raises `UnsureError`."""
        await self._expect_nothing()
        await self._found()
        for _ in range(int(self.context.get("acts", 4))):
            await self.rng.choice(self._acts)()
            await self._verify()
        await self._take_down()

    # --- checks -----------------------------------------------------------------------

    async def _expect_nothing(self) -> None:
        """A new group has no state and no offsets."""
        self.state = "Dead"
        self.offsets.committed.clear()
        self.offsets.expires_ms.clear()
        self.offsets.free_ms = None
        await self.described("Dead", ())
        await self.offsets.check()
        if self.rng.random() < 0.3:
            await self.deleted(ErrorCode.group_id_not_found)
            await self.offsets.delete((), ErrorCode.group_id_not_found)

    async def _verify(self) -> None:
        """Everything that can be asked about the group is as the model says."""
        self.may_be_new = self.may_be_new or self.may_vanish
        for person in self.rng.sample(self.members, min(2, len(self.members))):
            await self.beat(person, self.generation, ErrorCode.none)
        if self.members and self.rng.random() < 0.5:
            await self.sync_again(self.rng.choice(self.members))
        if not self.may_vanish:
            await self.described(self.state, self.members)
            await self.listed()
        await self.offsets.check(stable=self.rng.random() < 0.3)

    async def _wait(self) -> None:
        """Let time pass: the broker may restart meanwhile, and nothing changes."""
        await self.context.pause(100, 1_500)

    # --- coming -----------------------------------------------------------------------

    async def _found(self) -> None:
        """The first member of an empty group waits for others, for the initial delay."""
        person = self.newcomer()
        began_ms = self.now_ms()
        join = self.joining(person)
        await join
        delay_ms = float(self.context.get("initial_delay_ms", 0))
        self.expect(
            self.now_ms() - began_ms >= delay_ms * 0.99,
            f"the first generation began after {self.now_ms() - began_ms:.0f} of {delay_ms} ms",
        )
        await self.complete({person: join})

    async def _grow(self) -> None:
        """New members join: the others are told to, and the last one starts the generation."""
        if not self.members:
            await self._found()
        elif len(self.members) < _MEMBERS_MAX:
            await self._admit([self.newcomer() for _ in range(self.rng.choice((1, 1, 2)))])

    async def _admit(self, newcomers: Sequence[Person]) -> None:
        joins = {each: self.joining(each) for each in newcomers}
        await self.await_rebalance(self.members)

        async def wait() -> bool:
            count = await self.look(self.members_count)
            return count == len(self.members) + len(newcomers)

        await self.until(wait, "the new members wait")
        await self._rejoin(joins)

    async def _rejoin(self, joins: Joins, people: Iterable[Person] | None = None) -> None:
        """These members, or all, join again after those that wait already."""
        left = [each for each in people or self.members if each not in joins]
        self.rng.shuffle(left)
        if left and self.rng.random() < 0.5:
            everyone = dict.fromkeys((*self.members, *joins))
            known = [each for each in everyone if each.member_id]
            await self.described("PreparingRebalance", known, len(everyone) - len(known))
        for each in left:
            await self.still_wait(joins.values(), f"before {each.member_id} joined")
            joins[each] = self.joining(each)
            await self.context.pause(0, 20)
        await self.complete(joins)

    # --- changing ---------------------------------------------------------------------

    async def _change(self) -> None:
        """The leader asks for a rebalance; others get one only if they offer something else."""
        if not self.members:
            return
        person = self.rng.choice(self.members)
        if person is not self.leader and self.rng.random() < 0.4:
            link = self.links.get(person.wire)
            if link is None or link.is_closed or self.was_loaded:
                # A broker that started since then knows one of its protocols only.
                return
            await self.join_again(person)
            if self.links[person.wire] is not link:
                raise UnsureError("another connection")
            return
        if person is not self.leader or self.rng.random() < 0.5:
            self.offer(person)
        joins = {person: self.joining(person)}
        await self.await_rebalance([each for each in self.members if each is not person])
        await self._rejoin(joins)

    async def _restart_static(self) -> None:
        """A static member starts again: it replaces its former self, without a rebalance."""
        statics = [each for each in self.members if each.instance_id]
        if not statics or len(self.votes()) > 1:
            return
        person, leader = self.rng.choice(statics), self.leader
        assert leader is not None
        former_id, former_leader_id = person.member_id, leader.member_id
        person.member_id, person.wire = "", self.wire(f"again{self.rng.getrandbits(20)}")
        answer, version = await self.joining(person)
        self.sure(answer.error_code)
        member_id = str(answer.member_id)
        self.check_id(person, member_id)
        person.member_id = member_id
        told = (answer.error_code, int(answer.generation_id), answer.protocol_name)
        may_skip = version >= _SKIP_MIN
        leader_id = leader.member_id if may_skip else former_leader_id
        leads = may_skip and person is leader
        self.expect(
            told == (ErrorCode.none, self.generation, self.protocol)
            and (str(answer.leader), bool(answer.skip_assignment)) == (leader_id, leads)
            and member_id != former_id,
            f"JoinGroup v{version} of {former_id}, started again, gave {answer}",
        )
        self.check_list(answer, self.listed_in(version) if leads else {}, "a restarted leader")
        self.end_volatile()
        await self.beat(person, self.generation, ErrorCode.fenced_instance_id, former_id)
        await self.sync_again(person)

    # --- misuse -----------------------------------------------------------------------

    async def _misuse(self) -> None:
        """Whatever is wrong is refused with Kafka's code, and changes nothing."""
        if not self.members:
            await self._misuse_empty()
            return
        rng = self.rng
        person = rng.choice(self.members)
        stranger = ErrorCode.fenced_instance_id if person.instance_id else _UNKNOWN
        former, wrong = self.generation + rng.choice((-1, 1, 7)), "no-member"
        acts: Sequence[Callable[[], Awaitable[None]]] = (
            lambda: self.beat(person, former, ErrorCode.illegal_generation),
            lambda: self.beat(person, self.generation, stranger, wrong),
            lambda: self._sync_wrongly(person, former, ErrorCode.illegal_generation),
            lambda: self._sync_wrongly(person, self.generation, stranger, wrong),
            lambda: self._commit(person, Who(former), ErrorCode.illegal_generation),
            lambda: self._commit(person, Who(self.generation, wrong), stranger),
            lambda: self.offsets.commit(self.admin, ALONE, _UNKNOWN),
            lambda: self._join_wrongly(person),
            lambda: self.deleted(ErrorCode.non_empty_group),
            lambda: self.leave([(wrong, person.instance_id, stranger)], self.admin),
            lambda: self.leave([("", "no-instance", _UNKNOWN)], self.admin),
            self._come_back,
        )
        for act in rng.sample(acts, 4):
            await act()

    async def _misuse_empty(self) -> None:
        stranger = replace(self.newcomer(), instance_id=None)
        await self.beat(stranger, self.generation, _UNKNOWN, "no-member")
        await self._join_as(stranger, _UNKNOWN, member_id="no-member")

    async def _commit(self, person: Person, who: Who, due: ErrorCode) -> None:
        name = who.member_id or person.member_id
        who = Who(who.generation, name, person.instance_id)
        await self.offsets.commit(person.wire, who, due)

    async def _come_back(self) -> None:
        """Someone who has left is not known any more."""
        if self.gone:
            stranger = replace(self.newcomer(), instance_id=None)
            generation, member_id = self.rng.choice(self.gone)
            await self.beat(stranger, generation, _UNKNOWN, member_id)
            await self.offsets.commit(stranger.wire, Who(generation, member_id), _UNKNOWN)
            await self.leave([(member_id, None, _UNKNOWN)], self.admin)
            await self._join_as(stranger, _UNKNOWN, member_id=member_id)

    async def _join_wrongly(self, person: Person) -> None:
        stranger = self.newcomer()
        inconsistent = ErrorCode.inconsistent_group_protocol
        choice = self.rng.randrange(4)
        if choice == 0:
            foreign = replace(stranger, protocols=(("foreign", b"x"),))
            await self._join_as(foreign, inconsistent)
        elif choice == 1:
            await self._join_as(stranger, inconsistent, kind="another type")
        elif choice == 2:
            session_ms = self.rng.choice((1, 499, 1_800_001))
            strange = replace(stranger, session_ms=session_ms)
            await self._join_as(strange, ErrorCode.invalid_session_timeout)
        else:
            dynamic = replace(stranger, instance_id=None)
            await self._join_as(dynamic, _UNKNOWN, member_id="no-member")

    async def _join_as(
        self, person: Person, due: ErrorCode, *, member_id: str = "", kind: str | None = None
    ) -> None:
        request = replace(self.join_request(person), member_id=member_id)
        request = replace(request, protocol_type=kind or self.type)
        oldest = INSTANCE_MIN if person.instance_id else 0
        answer, version = await self.ask(person.wire, ApiKey.JOIN_GROUP, request, at_least=oldest)
        code = self.sure(answer.error_code)
        self.expect(
            code is due and answer.generation_id == -1 and not answer.members,
            f"JoinGroup v{version} of {member_id or person} gave {answer}, due is {due.name}",
        )

    async def _sync_wrongly(
        self, person: Person, generation: int, due: ErrorCode, member_id: str = ""
    ) -> None:
        request = sync_group.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id or person.member_id,
            group_instance_id=person.instance_id,
            protocol_type=self.type,
            protocol_name=self.protocol,
            assignments=(
                sync_group.SyncGroupRequestAssignment(
                    member_id=person.member_id, assignment=b"wrong"
                ),
            ),
        )
        answer, version = await self.ask(
            person.wire, ApiKey.SYNC_GROUP, request, at_least=3 if person.instance_id else 0
        )
        code = self.sure(answer.error_code)
        self.expect(
            code is due and not answer.assignment,
            f"SyncGroup v{version} in {generation} gave {answer}, due is {due.name}",
        )

    # --- offsets ----------------------------------------------------------------------

    async def _use_offsets(self) -> None:
        """Commit as a member, as no member to an empty group; delete what no member reads."""
        offsets, rng = self.offsets, self.rng
        for _ in range(rng.choice((1, 2))):
            if self.members:
                person = rng.choice(self.members)
                await offsets.commit(person.wire, self.who(person))
            else:
                await offsets.commit(self.admin)
        await offsets.check()
        if rng.random() < 0.5 and not self.may_vanish:
            is_refused = self.members and self.type != "consumer"
            due = ErrorCode.non_empty_group if is_refused else ErrorCode.none
            await offsets.delete(self.subscribed, due)

    # --- time -------------------------------------------------------------------------

    async def _fall_silent(self) -> None:
        """A member that says nothing for its session is taken out then, and not before."""
        person = self.newcomer()
        person.session_ms, began_s = _SHORT_MS, self.context.now_s()
        self.join_min, join_min = 1, self.join_min
        if self.members:
            await self._admit([person])
        else:
            await self.complete({person: self.joining(person)})
        self.join_min = join_min
        others = [each for each in self.members if each is not person]
        since_ms = self.now_ms()
        await self.beat(person, self.generation, ErrorCode.none)
        until_ms = self.now_ms() + _SHORT_MS
        self.begin_volatile()
        await self._sleep_until(since_ms + _SHORT_MS - _EARLY_MS)
        for other in others[:1]:
            code = await self.pulse(other, self.generation)
            is_early = self.now_ms() < since_ms + _SHORT_MS - 1
            self.expect(
                code is ErrorCode.none or not is_early,
                f"{person.member_id} was taken out before its {_SHORT_MS} ms were over",
            )
        await self._sleep_until(until_ms + SLACK_MS)
        if not self.is_disturbed(began_s):
            for other in others:
                await self.beat(other, self.generation, ErrorCode.rebalance_in_progress)
        self._lose(person)
        if others:
            await self.await_rebalance(others)
            await self.beat(person, self.generation, _UNKNOWN)
            await self._rejoin({})
        else:
            await self.until(self._is_empty, "the silent member is gone")
            await self.beat(person, self.generation, _UNKNOWN)
            self._is_over()

    async def _is_empty(self) -> bool:
        return not await self.look(self.members_count)

    async def _stay_away(self) -> None:
        """A rebalance goes on without a member that does not join again in time."""
        dynamic = [each for each in self.members if not each.instance_id]
        if not self._is_hasty or len(self.members) < 2 or not dynamic:
            return
        person = self.rng.choice(dynamic)
        others = [each for each in self.members if each is not person]
        first, began_s = self.rng.choice(others), self.context.now_s()
        if first is not self.leader:
            self.offer(first)
        began_ms = self.now_ms()
        joins = {first: self.joining(first)}
        await self.await_rebalance([each for each in self.members if each is not first])
        told_ms = self.now_ms()
        for each in others:
            if each is not first:
                joins[each] = self.joining(each)
        await self._sleep_until(began_ms + _SHORT_MS - _EARLY_MS)
        await self.still_wait(joins.values(), f"before {_SHORT_MS} ms were over")
        for join in joins.values():
            await join
        self.expect(
            self.now_ms() < told_ms + _SHORT_MS + SLACK_MS or self.is_disturbed(began_s),
            f"a rebalance waited {self.now_ms() - told_ms:.0f} of {_SHORT_MS} ms",
        )
        self._lose(person)
        await self.complete(joins)
        await self.beat(person, self.generation, _UNKNOWN)

    async def _ask_for_an_id(self) -> None:
        """An id that was given out and is never used holds a rebalance up for a session."""
        if self._is_hasty or not self.members or self.leader is None:
            return
        ghost, began_s = replace(self.newcomer(), instance_id=None, session_ms=_SHORT_MS), 0.0
        self.begin_volatile()
        began_s, began_ms = self.context.now_s(), self.now_ms()
        answer, version = await self.ask(
            ghost.wire, ApiKey.JOIN_GROUP, self.join_request(ghost), at_least=4
        )
        code = self.sure(answer.error_code)
        self.expect(code is ErrorCode.member_id_required, f"JoinGroup v{version} gave {answer}")
        given_ms, member_id = self.now_ms(), str(answer.member_id)
        if self.rng.random() < 0.3:
            # As in Apache Kafka the others rebalance, although it was no member.
            await self.leave([(member_id, None, ErrorCode.none)], ghost.wire)
            await self.await_rebalance(self.members)
            await self._rejoin({})
            return
        joins = {self.leader: self.joining(self.leader)}
        await self.await_rebalance([each for each in self.members if each is not self.leader])
        joins |= {each: self.joining(each) for each in self.members if each is not self.leader}
        await self._sleep_until(began_ms + _SHORT_MS - _EARLY_MS)
        await self.still_wait(joins.values(), f"before {member_id} was given up")
        for join in joins.values():
            await join
        self.expect(
            self.now_ms() < given_ms + _SHORT_MS + SLACK_MS or self.is_disturbed(began_s),
            f"an id held a rebalance up for {self.now_ms() - given_ms:.0f} ms",
        )
        self.gone.append((self.generation, member_id))
        await self.complete(joins)

    async def _sleep_until(self, at_ms: float) -> None:
        await self.context.clock.sleep(max(0.0, at_ms - self.now_ms()))

    # --- going ------------------------------------------------------------------------

    async def _go(self) -> None:
        """Members leave, each by itself or all by an administrator; the others rebalance."""
        if not self.members:
            return
        count = self.rng.choice((1, 1, len(self.members)))
        going = self.rng.sample(self.members, count)
        leaving = []
        for each in going:
            by_name = each.instance_id and self.rng.random() < 0.5
            leaving.append(("" if by_name else each.member_id, each.instance_id, ErrorCode.none))
        if self.rng.random() < 0.2:
            leaving.append(("no-member", None, _UNKNOWN))
        self.begin_volatile()
        await self.leave(leaving, going[0].wire if count == 1 else self.admin)
        for each in going:
            self._lose(each)
        if not self.members:
            self._is_over()
            return
        await self.await_rebalance(self.members)
        await self._rejoin({})

    def _lose(self, person: Person) -> None:
        """Take a member out of the model."""
        self.members.remove(person)
        self.gone.append((self.generation, person.member_id))
        if person is self.leader:
            self.leader = None

    def _is_over(self) -> None:
        """The last member has gone."""
        self.end_volatile()
        self.offsets.free_ms = self.now_ms()
        self.state, self.protocol, self.leader = "Empty", "", None
        self.generation += 1

    async def _take_down(self) -> None:
        """All leave; then the group is deleted, and nothing of it remains."""
        while self.members:
            await self._go()
        await self._verify()
        if self.rng.random() < 0.5:
            await self.offsets.commit(self.admin)
            await self._verify()
        if self.may_vanish or self.rng.random() < 0.3:
            return
        await self.deleted(ErrorCode.none)
        self.generation = 0
        await self._expect_nothing()
        if self.rng.random() < 0.4:
            await self._found()
            await self._verify()


_UNKNOWN: Final = ErrorCode.unknown_member_id
