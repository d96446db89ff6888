"""What drives a member of a group, whichever protocol it speaks."""

from typing import Any, Generic, TypeVar

from oncelog.client.machines.membership import (
    ChangeKind,
    CoordinatorRequest,
    GroupMachine,
    MemberSettings,
    OwnershipChange,
)
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
SETTINGS = MemberSettings("g", 45_000, 3_000, 300_000)
Member = TypeVar("Member", bound=GroupMachine)


class DrivenMember(Generic[Member]):
    """A member that subscribed, and its clock."""

    def __init__(self, member: Member) -> None:
        self.member = member
        member.subscribe(("t",))
        self.now_ms = 1_000.0

    def owned(self) -> tuple[TopicPartition, ...]:
        return self.member.ownership.owned

    def poll(self) -> list[OwnershipChange]:
        """What the application's task does: it carries out all changes."""
        self.member.polled(self.now_ms)
        done = []
        while (change := self.member.ownership.begin()) is not None:
            done.append(change)
            self.member.carried_out()
        return done

    def asked(self, api: ApiKey) -> Any:
        """The next request, which must be of this API."""
        action = self.member.next(self.now_ms)
        assert isinstance(action, CoordinatorRequest), action
        assert action.api is api
        return action.request


def assigned(*partitions: TopicPartition) -> OwnershipChange:
    return OwnershipChange(ChangeKind.ASSIGNED, partitions)


def revoked(*partitions: TopicPartition) -> OwnershipChange:
    return OwnershipChange(ChangeKind.REVOKED, partitions)


def lost(*partitions: TopicPartition) -> OwnershipChange:
    return OwnershipChange(ChangeKind.LOST, partitions)
