"""What a member of a group does next under the new protocol (KIP-848), answer by answer."""

from typing import Any

import pytest

from oncelog.client.errors import FatalError, FencedError
from oncelog.client.machines.consumer_member import NewProtocolMember
from oncelog.client.machines.membership import (
    CoordinatorRequest,
    Look,
    MemberSettings,
    Wait,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.unit.client.machines.members import (
    SETTINGS,
    T0,
    T1,
    T2,
    DrivenMember,
    assigned,
    lost,
    revoked,
)

ID, OTHER = (TopicId(int=number) for number in (1, 2))


def partitions(*indexes: int, topic_id: TopicId = ID) -> ConsumerGroupHeartbeatTopicPartitions:
    return ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes)


class Driven(DrivenMember[NewProtocolMember]):
    """A member, and a coordinator that answers as a test says."""

    def __init__(self, settings: MemberSettings = SETTINGS) -> None:
        super().__init__(NewProtocolMember(settings, "me"))
        self.member.metadata_changed({"t": 3}, {ID: "t"})
        self.epoch = 0

    def ask(self) -> Any:
        """The next heartbeat."""
        return self.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)

    def answer(self, *topics: Any, epoch: int | None = None, told: bool = True) -> None:
        self.epoch = self.epoch + 1 if epoch is None else epoch
        assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=topics) if told else None
        answer = ConsumerGroupHeartbeatResponse(
            member_id="me",
            member_epoch=self.epoch,
            heartbeat_interval_ms=5_000,
            assignment=assignment,
        )
        assert self.member.answered(answer, self.now_ms)

    def refuse(self, code: ErrorCode) -> bool:
        return self.member.answered(ConsumerGroupHeartbeatResponse(error_code=code), self.now_ms)


def settled(*indexes: int, settings: MemberSettings = SETTINGS) -> Driven:
    """A member that owns these partitions and has said so."""
    driven = Driven(settings)
    driven.poll()
    driven.ask()
    driven.answer(partitions(*indexes))
    driven.poll()
    driven.ask()
    driven.answer(told=False, epoch=driven.epoch)
    assert driven.member.is_settled
    return driven


def test_a_member_joins_with_everything_once_the_application_polls() -> None:
    driven = Driven()
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == []
    request = driven.ask()
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "me", 0)
    assert request.rebalance_timeout_ms == 300_000
    assert request.subscribed_topic_names == ("t",)
    assert request.subscribed_topic_regex is None
    assert request.topic_partitions == ()


def test_what_is_assigned_is_taken_and_then_said_at_once() -> None:
    driven = Driven()
    driven.poll()
    driven.ask()
    driven.answer(partitions(0, 1))
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == [assigned(T0, T1)]
    request = driven.ask()
    assert (request.member_epoch, request.topic_partitions) == (1, (partitions(0, 1),))
    assert request.subscribed_topic_names is None
    assert request.rebalance_timeout_ms == -1


def test_a_heartbeat_without_news_says_nothing_and_keeps_the_coordinators_interval() -> None:
    driven = settled(0)
    assert driven.member.next(driven.now_ms) == Wait(driven.now_ms + 5_000)
    driven.now_ms += 5_000
    request = driven.ask()
    assert request.topic_partitions is None
    assert request.subscribed_topic_names is None


def test_partitions_are_given_up_before_others_are_taken() -> None:
    driven = settled(0, 1)
    driven.now_ms += 5_000
    driven.ask()
    driven.answer(partitions(1, 2))
    assert driven.poll() == [revoked(T0), assigned(T2)]
    assert driven.owned() == (T1, T2)
    assert driven.ask().topic_partitions == (partitions(1, 2),)


def test_heartbeats_go_on_while_the_application_takes_its_time() -> None:
    driven = settled(0)
    driven.now_ms += 5_000
    driven.ask()
    driven.answer(partitions())
    assert driven.member.ownership.begin() == revoked(T0)
    driven.now_ms += 5_000
    assert driven.ask().topic_partitions == (partitions(0),)
    driven.answer(told=False, epoch=driven.epoch)
    driven.member.carried_out()
    assert driven.poll() == [assigned()]
    assert driven.ask().topic_partitions == ()


def test_a_lost_answer_makes_the_next_heartbeat_say_everything() -> None:
    driven = settled(0)
    driven.now_ms += 5_000
    driven.ask()
    driven.member.failed(driven.now_ms)
    request = driven.ask()
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == ("t",)
    assert request.topic_partitions == (partitions(0),)


def test_another_subscription_is_said_at_once() -> None:
    driven = settled(0)
    driven.member.subscribe(("t", "u"))
    request = driven.ask()
    assert request.subscribed_topic_names == ("t", "u")
    assert request.topic_partitions is None


def test_an_expression_is_matched_by_the_broker_and_can_be_taken_back() -> None:
    driven = Driven()
    driven.member.subscribe((), "t.*")
    driven.poll()
    request = driven.ask()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ((), "t.*")
    driven.answer(partitions())
    driven.ask()
    driven.answer(told=False, epoch=driven.epoch)
    driven.member.subscribe(("t",))
    request = driven.ask()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("t",), "")


def test_partitions_of_a_topic_without_a_name_wait_for_it() -> None:
    driven = Driven()
    driven.poll()
    driven.ask()
    driven.answer(partitions(0), partitions(4, topic_id=OTHER))
    assert driven.member.next(driven.now_ms) == Look(())
    driven.member.looked({})
    assert driven.poll() == [assigned(T0)]
    driven.member.metadata_changed({}, {ID: "t", OTHER: "u"})
    assert driven.poll() == [assigned(TopicPartition("u", 4))]


def test_a_topic_without_an_id_is_passed_over() -> None:
    driven = Driven()
    driven.poll()
    driven.ask()
    driven.answer(partitions(0), ConsumerGroupHeartbeatTopicPartitions(partitions=(4,)))
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == [assigned(T0)]
    driven.ask()


@pytest.mark.parametrize("code", [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id])
def test_a_fenced_member_loses_everything_before_it_joins_again(code: ErrorCode) -> None:
    driven = settled(0)
    driven.now_ms += 5_000
    driven.ask()
    assert driven.refuse(code)
    assert driven.member.identity.generation == -1
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == [lost(T0)]
    request = driven.ask()
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("me", 0, ())


def test_what_is_being_taken_when_the_member_is_fenced_is_lost_after_it() -> None:
    driven = Driven()
    driven.poll()
    driven.ask()
    driven.answer(partitions(0))
    assert driven.member.ownership.begin() == assigned(T0)
    driven.now_ms += 5_000
    driven.ask()
    driven.refuse(ErrorCode.fenced_member_epoch)
    driven.member.carried_out()
    assert driven.poll() == [lost(T0)]


def test_a_coordinator_that_is_not_there_is_asked_again_with_everything() -> None:
    driven = settled(0)
    driven.now_ms += 5_000
    driven.ask()
    assert not driven.refuse(ErrorCode.not_coordinator)
    assert driven.ask().subscribed_topic_names == ("t",)


@pytest.mark.parametrize("code", [ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id])
def test_an_instance_id_that_another_has_ends_the_member(code: ErrorCode) -> None:
    driven = settled(0, settings=SETTINGS._replace(group_instance_id="one"))
    driven.now_ms += 5_000
    driven.ask()
    driven.refuse(code)
    assert isinstance(driven.member.error, FencedError)
    assert driven.poll() == [lost(T0)]
    assert isinstance(driven.member.next(driven.now_ms), Wait)


def test_an_assignor_that_the_broker_does_not_have_is_final() -> None:
    driven = Driven()
    driven.poll()
    driven.ask()
    driven.refuse(ErrorCode.unsupported_assignor)
    assert isinstance(driven.member.error, FatalError)


def test_a_member_whose_application_does_not_poll_leaves_and_comes_back() -> None:
    driven = settled(0)
    driven.now_ms += SETTINGS.max_poll_interval_ms
    assert driven.ask().member_epoch == -1
    driven.answer(told=False, epoch=-1)
    assert isinstance(driven.member.next(driven.now_ms), Wait)
    assert driven.poll() == [lost(T0)]
    driven.poll()
    assert driven.ask().member_epoch == 0


def left(member: NewProtocolMember) -> int | None:
    """The epoch with which a member leaves."""
    asked = member.leave()
    if asked is None:
        return None
    assert isinstance(asked.request, ConsumerGroupHeartbeatRequest)
    return asked.request.member_epoch


def test_a_static_member_leaves_for_a_while_only() -> None:
    assert left(settled(0, settings=SETTINGS._replace(group_instance_id="one")).member) == -2
    assert left(settled(0).member) == -1
    assert left(Driven().member) is None


def test_a_commit_with_a_stale_epoch_asks_for_the_new_one_at_once() -> None:
    driven = settled(0)
    driven.member.commit_refused(ErrorCode.stale_member_epoch, driven.member.identity)
    assert driven.ask().member_epoch == 1


@pytest.mark.parametrize("polled_ms", [467182.122056, 823716.868469])
def test_the_wait_for_a_poll_ends_when_the_member_leaves(polled_ms: float) -> None:
    driven = settled(0)
    driven.now_ms = polled_ms
    driven.poll()
    # It takes the interval of a heartbeat for longer than that between two polls.
    driven.member.answered(
        ConsumerGroupHeartbeatResponse(
            member_id="me", member_epoch=driven.epoch, heartbeat_interval_ms=10**9
        ),
        polled_ms,
    )
    action = driven.member.next(polled_ms)
    assert isinstance(action, Wait)
    after = driven.member.next(action.until_ms)
    assert isinstance(after, CoordinatorRequest)
    assert isinstance(after.request, ConsumerGroupHeartbeatRequest)
    assert after.request.member_epoch == -1
