"""The role of a broker in one partition: which it is, and who is told what."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.replication.follower import FollowerState
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import FailedState, LoneLeader, OfflineState, ReplicaState
from oncelog.replication.roles import fail, resign
from tests.unit.replication.support import ME, TOPIC_ID, given, replica, take


def test_the_role_is_chosen_by_the_assignment() -> None:
    begun = replica()
    assert type(begun) is OfflineState
    assert type(take(begun, given((ME,)))) is LoneLeader
    assert type(take(begun, given((ME,), replicas=(ME, 2)))) is LeaderState
    assert type(take(begun, given((ME, 2), replicas=(ME,)))) is LeaderState
    assert type(take(begun, given((2, ME), leader=2))) is FollowerState
    assert type(take(begun, given((2, ME), leader=-1))) is FollowerState


def test_a_lone_replica_commits_what_it_appends() -> None:
    state = take(replica(), given((ME,)))
    assert state.local_end_moved(5) is True
    assert state.high_watermark == 5
    assert state.local_end_moved(5) is False


def test_a_lone_leader_commits_its_whole_log_at_election() -> None:
    assert take(replica(end=9, high_watermark=4), given((ME,))).high_watermark == 9


def test_no_more_replicas_have_to_be_in_sync_than_there_are() -> None:
    state = take(replica(end=10), given((ME,), min_isr=2))
    assert state.has_enough_replicas
    assert state.high_watermark == 10
    state = take(replica(end=10), given((ME,), replicas=(ME, 2), min_isr=3))
    assert not state.has_enough_replicas
    state = take(replica(end=10), given((ME, 2), min_isr=3))
    assert state.has_enough_replicas


def test_an_older_assignment_is_ignored() -> None:
    state = take(replica(), given((2,), replicas=(ME, 2), leader=2, epoch=4, partition_epoch=7))
    assert take(state, given((ME,), epoch=3, partition_epoch=9)) is state
    assert take(state, given((2, ME), leader=2, epoch=4, partition_epoch=6)) is state
    assert state.leader_epoch == 4


def test_a_log_that_was_moved_knows_no_more_committed_than_it_holds() -> None:
    held = OfflineState.unassigned(ME, TOPIC_ID, log_end_offset=9, high_watermark=7)
    assert held.with_log(12).high_watermark == 7
    assert held.with_log(5).high_watermark == 5


def test_a_checkpoint_beyond_the_log_is_cut_to_its_end() -> None:
    assert replica(end=3, high_watermark=9).high_watermark == 3


@pytest.mark.parametrize(
    ("request_epoch", "expected"),
    [
        (-1, ErrorCode.none),
        (5, ErrorCode.none),
        (4, ErrorCode.fenced_leader_epoch),
        (6, ErrorCode.unknown_leader_epoch),
    ],
)
@pytest.mark.parametrize("isr", [(ME,), (ME, 2)])
def test_a_leader_compares_epochs(
    isr: tuple[int, ...], request_epoch: int, expected: ErrorCode
) -> None:
    assert take(replica(), given(isr, epoch=5)).leader_error(request_epoch) is expected


def test_who_does_not_lead_says_so() -> None:
    begun = replica()
    assert begun.leader_error() is ErrorCode.not_leader_or_follower
    follower = take(begun, given((2,), replicas=(2, ME), leader=2))
    assert follower.leader_error() is ErrorCode.not_leader_or_follower
    assert not follower.is_leader


def test_a_resigned_partition_serves_no_request() -> None:
    state = resign(take(replica(), given((ME,))))
    assert state.leader_error() is ErrorCode.not_leader_or_follower
    assert state.local_end_moved(4) is False
    assert state.high_watermark == 0
    assert take(state, given((ME,), epoch=-1)) is state


def test_a_failed_disk_counts_before_the_epoch_and_takes_no_role() -> None:
    state = fail(take(replica(), given((ME,), epoch=5)))
    assert type(state) is FailedState
    assert state.leader_error(4) is ErrorCode.kafka_storage_error
    assert take(state, given((ME,), epoch=6)) is state
    assert resign(state) is state


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (take(replica(), given((ME,))), ErrorCode.unknown_leader_epoch),
        (replica(), ErrorCode.not_leader_or_follower),
        (fail(replica()), ErrorCode.kafka_storage_error),
    ],
    ids=["lone leader", "no role", "failed"],
)
def test_who_leads_no_follower_refuses_its_fetch(state: ReplicaState, expected: ErrorCode) -> None:
    assert state.follower_fetched(2, 0, log_end_offset=0, now_ms=0) is expected


def test_identity_and_offsets_stay_through_all_roles() -> None:
    state: ReplicaState = replica(end=8, high_watermark=5)
    state = take(state, given((2, ME), leader=2))
    state = take(state, given((2, ME), leader=ME, epoch=1))
    state = fail(resign(state))
    assert (state.broker_id, state.topic_id, state.log_end_offset) == (ME, TOPIC_ID, 8)
    assert (state.high_watermark, state.leader_epoch) == (5, 1)
    assert state.isr == {2, ME}
