"""Plays all members of a classic group, and judges every answer by a naive model of it.

Members are dynamic and static, offer several protocols, and send every request in any version. The
model is Apache Kafka's: a rebalance ends when all members have joined, the generation goes up by
one, the protocol is one with most votes, the leader alone is told of the others, and each member
gets the bytes that the leader gave it. What comes of a former generation, of a former member or of
strangers is refused and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import join_group, sync_group
from oncelog.simulation.peers.exact_classic_view import (
    INSTANCE_ELSEWHERE_MIN,
    INSTANCE_MIN,
    PROTOCOLS,
    ClassicView,
    Join,
    Person,
)
from oncelog.simulation.peers.scene import UnsureError

__all__ = ["ExactClassicGroup"]

_ID_FIRST_MIN: Final = 4
_TYPE_MIN: Final = 7


class ExactClassicGroup(ClassicView):
    """See the module."""

    # --- joining ----------------------------------------------------------------------

    def joining(self, person: Person, *, at_least: int = 0) -> asyncio.Task[Join]:
        """Send JoinGroup, with an id first where that is due; it may wait."""
        self.begin_volatile()
        return self.spawn(self._join(person, max(at_least, self.join_min)))

    def join_request(self, person: Person) -> join_group.JoinGroupRequest:
        """Return a member's JoinGroup."""
        return join_group.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=person.session_ms,
            rebalance_timeout_ms=person.rebalance_ms,
            member_id=person.member_id,
            group_instance_id=person.instance_id,
            protocol_type=self.type,
            protocols=tuple(
                join_group.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in person.protocols
            ),
            reason=None,
        )

    async def _join(self, person: Person, at_least: int) -> Join:
        oldest = max(at_least, INSTANCE_MIN if person.instance_id else 0)
        answer, version = await self.ask(
            person.wire, ApiKey.JOIN_GROUP, self.join_request(person), at_least=oldest
        )
        code = self.sure(answer.error_code)
        needs_id = not person.member_id and not person.instance_id and version >= _ID_FIRST_MIN
        self.expect(
            (code is ErrorCode.member_id_required) == needs_id,
            f"JoinGroup v{version} of {person.member_id or 'a new member'} got {code.name}",
        )
        if needs_id:
            self.check_id(person, str(answer.member_id))
            person.member_id = str(answer.member_id)
            return await self._join(person, _ID_FIRST_MIN)
        return answer, version

    def check_id(self, person: Person, member_id: str) -> None:
        """A new id is made of the instance id, or the client's, and a UUID."""
        prefix = f"{person.instance_id or person.client_id}-"
        self.expect(
            member_id.startswith(prefix) and len(member_id) == len(prefix) + 36,
            f"a member id {member_id!r} for {prefix}",
        )

    async def complete(self, joins: Mapping[Person, asyncio.Task[Join]]) -> None:
        """Wait for a generation of these members, then let the leader assign."""
        answers = {person: await join for person, join in joins.items()}
        is_first = any(answer.generation_id == 1 for answer, _ in answers.values())
        if is_first and (self.may_be_new or self.may_vanish):
            self.generation = 0
        self.may_be_new, self.offsets.free_ms = False, None
        kept = self.leader if self.leader in joins else None
        self.generation += 1
        self.members = list(joins)
        leaders = {str(answer.leader) for answer, _ in answers.values()}
        protocols = {answer.protocol_name for answer, _ in answers.values()}
        votes = self.votes()
        what = f"generation {self.generation} of {len(joins)}"
        for person, (answer, version) in answers.items():
            code = self.sure(answer.error_code)
            self.expect(code is ErrorCode.none, f"JoinGroup v{version} got {code.name} in {what}")
            if not person.member_id:
                self.check_id(person, str(answer.member_id))
                person.member_id = str(answer.member_id)
            told = (int(answer.generation_id), str(answer.member_id), answer.skip_assignment)
            self.expect(
                told == (self.generation, person.member_id, False)
                and answer.protocol_type == (self.type if version >= _TYPE_MIN else None),
                f"JoinGroup v{version} of {person.member_id} gave {answer} in {what}",
            )
        self.expect(
            len(leaders) == 1 and len(protocols) == 1 and protocols <= votes,
            f"leaders {leaders}, protocols {protocols} of {votes} in {what}",
        )
        self.protocol = str(protocols.pop())
        (leader_id,) = leaders
        self.leader = next((each for each in joins if each.member_id == leader_id), None)
        self.expect(
            self.leader is not None and kept in (None, self.leader),
            f"{leader_id} leads {[each.member_id for each in joins]} in {what}",
        )
        for person, (answer, version) in answers.items():
            due = self.listed_in(version) if person is self.leader else {}
            self.check_list(answer, due, f"JoinGroup v{version} of {what}")
        await self._assign()

    def listed_in(self, version: int) -> dict[str, tuple[str | None, bytes]]:
        """Return the members as the leader is told of them."""
        return {
            each.member_id: (
                each.instance_id if version >= INSTANCE_MIN else None,
                each.metadata(self.protocol),
            )
            for each in self.members
        }

    def check_list(
        self, answer: join_group.JoinGroupResponse, due: Mapping[str, object], what: str
    ) -> None:
        """A JoinGroup lists these members: all for the leader, none for others."""
        listed = {
            str(each.member_id): (each.group_instance_id, bytes(each.metadata))
            for each in answer.members
        }
        self.expect(
            listed == due and len(listed) == len(answer.members),
            f"{what} listed {listed}, due is {due}",
        )

    def votes(self) -> set[str | None]:
        """Return the protocols with most votes among those that all members offer."""
        common = set(PROTOCOLS)
        for person in self.members:
            common &= dict(person.protocols).keys()
        votes = Counter(
            next(name for name, _ in person.protocols if name in common) for person in self.members
        )
        most = max(votes.values())
        return {name for name, count in votes.items() if count == most}

    # --- assigning --------------------------------------------------------------------

    async def _assign(self) -> None:
        """Sync: no member gets anything before the leader has spoken, then each gets its bytes."""
        rng, leader = self.rng, self.leader
        assert leader is not None
        given = {
            each: b"" if rng.random() < 0.15 else rng.randbytes(rng.choice((1, 40)))
            for each in self.members
        }
        others = [each for each in self.members if each is not leader]
        early = [each for each in others if rng.random() < 0.6]
        syncs = {each: self.syncing(each) for each in early}
        if rng.random() < 0.4:
            await self._look_between([each for each in self.members if each not in syncs])
        await self.still_wait(syncs.values(), "before the leader's SyncGroup")
        syncs[leader] = self.syncing(leader, given)
        asked_ms = self.now_ms()
        for each, sync in list(syncs.items()):
            self._check_sync(each, given[each], *await sync)
        for each in others:
            if each not in syncs:
                if self.now_ms() - asked_ms > self.rebalance_ms / 2:
                    # Who has not asked within the rebalance timeout is no member any more.
                    raise UnsureError("the leader's SyncGroup took long")
                self._check_sync(each, given[each], *await self.syncing(each))
        self.state = "Stable"
        for each in self.members:
            each.assignment = given[each]
        self.end_volatile()

    async def _look_between(self, free: Sequence[Person]) -> None:
        """While the leader assigns. A SyncGroup that waits holds up its connection."""
        await self.described("CompletingRebalance", self.members)
        for each in free[:2]:
            await self.beat(each, self.generation, ErrorCode.none)
        await self.offsets.commit(
            self.admin, self.who(self.rng.choice(self.members)), ErrorCode.rebalance_in_progress
        )
        followers = [each for each in free if each is not self.leader]
        if followers:
            # It asks again for what it was told.
            await self.join_again(self.rng.choice(followers))

    async def join_again(self, person: Person) -> None:
        """A member that has changed nothing gets the answer of its generation again."""
        answer, version = await self._join(person, 0)
        told = (int(answer.generation_id), str(answer.member_id), str(answer.leader))
        assert self.leader is not None
        self.expect(
            answer.error_code is ErrorCode.none
            and told == (self.generation, person.member_id, self.leader.member_id)
            and answer.protocol_name == self.protocol,
            f"JoinGroup v{version} of {person.member_id} without a change gave {answer}",
        )
        self.check_list(answer, {}, f"JoinGroup v{version}")

    def syncing(
        self, person: Person, given: Mapping[Person, bytes] | None = None
    ) -> asyncio.Task[tuple[sync_group.SyncGroupResponse, int]]:
        """Send SyncGroup; it may wait."""
        assignments = [(each.member_id, each_is) for each, each_is in (given or {}).items()]
        if given and self.rng.random() < 0.2:
            assignments.append(("no-member", b"nothing"))
        request = sync_group.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=person.member_id,
            group_instance_id=person.instance_id,
            protocol_type=self.type,
            protocol_name=self.protocol,
            assignments=tuple(
                sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments
                if assignment or self.rng.random() < 0.5
            ),
        )
        oldest = INSTANCE_ELSEWHERE_MIN if person.instance_id else 0
        return self.spawn(self.ask(person.wire, ApiKey.SYNC_GROUP, request, at_least=oldest))

    def _check_sync(
        self, person: Person, due: bytes, answer: sync_group.SyncGroupResponse, version: int
    ) -> None:
        code = self.sure(answer.error_code)
        names = (self.type, self.protocol) if version >= INSTANCE_MIN else (None, None)
        told = (answer.protocol_type, answer.protocol_name)
        self.expect(
            (code, bytes(answer.assignment), told) == (ErrorCode.none, due, names),
            f"SyncGroup v{version} of {person.member_id} gave {answer}, due is {due!r}",
        )

    async def sync_again(self, person: Person) -> None:
        """In a stable group each member may ask for its assignment again."""

        async def again() -> None:
            self._check_sync(person, person.assignment, *await self.syncing(person))

        await self.look(again)
