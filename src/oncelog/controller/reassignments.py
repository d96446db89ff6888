"""Decides on reassignments: other brokers get the replicas of a partition (KIP-455).

A reassignment is in the state of its partition, and each step of it is one write of that state:

1. It begins: the replicas are the new ones and those that will go. Who is *adding* has nothing yet
   and begins to fetch; the *removing* ones serve on.
2. The leader asks the controller for each new replica that has caught up, as for any other.
3. With the ISR that has all new replicas it is done: those that go leave the assignment and the ISR
   in the same write, another one leads where one of them did, and a new leader epoch begins. They
   are noted as *removed*: each may have a folder until it has said that it has none (D14).

So a controller may die between any two steps: what the next one reads is one of these states, and
the leader's next request goes on from there. Cancelled, a reassignment goes back from 1 or 2, and
who was added is removed. Other replicas may be asked for meanwhile: who had no replica when the
first reassignment began is *adding* until the last is done, also where it is to go again.

The table has the steps of a partition with `min.insync.replicas=2`, of five brokers. A state is
``leader: ISR (eligible) of replicas +adding -removing ~removed``. *Live* are the brokers that may
be elected after the event.

=================================  =========  ==================  ==================================
state                              live       event               next
=================================  =========  ==================  ==================================
1: 1 2 3 of 1 2 3                  1 2 3 4    to 1 2 4            1: 1 2 3 of 1 2 4 3 +4 -3
1: 1 2 3 of 1 2 4 3 +4 -3          1 2 3 4    1 asks for 1 2 3 4  1: 1 2 4 of 1 2 4 ~3, new epoch
1: 1 2 3 of 2 3 4 1 +4 -1          1 2 3 4    1 asks for 1 2 3 4  2: 2 3 4 of 2 3 4 ~1, new epoch
1: 1 2 3 of 1 2 4 3 +4 -3          1 2 4      1 asks for 1 2 4    1: 1 2 4 of 1 2 4 ~3, new epoch
1: 1 2 3 of 1 2 3                  1 2 3      to 3 2 1            1: 1 2 3 of 3 2 1
1: 1 2 3 of 1 2 3                  1 2 3      to 1 2              1: 1 2 of 1 2 ~3, new epoch
1: 1 2 3 of 1 2 3                  1 2 3      to 2 3              2: 2 3 of 2 3 ~1, new epoch
1: 1 2 of 1 2 3                    1 2        to 2 3              1: 1 2 of 2 3 1 -1
1: 1 of 1                          1 2 3      to 1 2 3            1: 1 of 1 2 3 +2 3, new epoch
1: 1 of 1 2 3 +2 3                 1 2 3      1 asks for 1 2      1: 1 2 of 1 2 3 +2 3
1: 1 2 of 1 2 3 +2 3               1 2 3      1 asks for 1 2 3    1: 1 2 3 of 1 2 3
1: 1 2 3 of 4 5 1 2 3 +4 5 -1 2 3  1 2 3 4 5  is cancelled        1: 1 2 3 of 1 2 3 ~4 5, new epoch
4: 4 2 of 4 5 2 3 +4 5 -2 3        2 4 5      is cancelled        2: 2 of 2 3 ~4 5, new epoch
1: 1 2 3 of 1 2 4 3 +4 -3          1 2 3 4    to 1 2 3            1: 1 2 3 of 1 2 3 ~4, new epoch
1: 1 2 3 of 1 2 4 3 +4 -3          1 2 3 4    to 1 2 4            1: 1 2 3 of 1 2 4 3 +4 -3
1: 1 of 1 2 3 +2 3                 1 2 3      to 1 2 3            1: 1 of 1 2 3 +2 3
1: 1 2 3 of 1 2 4 3 +4 -3          1 2 3 4 5  to 1 2 5            1: 1 2 3 of 1 2 5 3 4 +4 5 -3 4
1: 1 2 3 of 1 2 5 3 4 +4 5 -3 4    1 2 3 4 5  is cancelled        1: 1 2 3 of 1 2 3 ~4 5, new epoch
1: 1 2 of 1 2 4 3 +4 -3            1 2 4      to 1 2 3            1: 1 2 of 1 2 3 4 +4 -4
1: 1 2 of 1 2 ~3                   1 2 3      to 1 2 3            1: 1 2 of 1 2 3 +3
1: 1 2 of 1 2 ~3 4                 1 2 3 4    3 has none          1: 1 2 of 1 2 ~4
1: 1 2 of 1 2 ~3 4                 1 2        4 is forgotten      1: 1 2 of 1 2 ~3
1: 1 2 3 of 2 3 4 1 +4 -1          2 3 4      1 is gone           2: 2 3 of 2 3 4 1 +4 -1, new epoch
1: 1 2 3 of 2 3 4 1 +4 -1          1 2 3      4 is gone           1: 1 2 3 of 2 3 4 1 +4 -1
1: 1 (2) of 2 1 -1                 2          1 is gone           2: 2 of 2 ~1, new epoch
1: 1 2 of 3 1 2 +3 -1 2            3          1 and 2 are gone    -: 1 2 of 3 1 2 +3 -1 2, new epoch
=================================  =========  ==================  ==================================

The lists, the refusals and their errors are those of Kafka's KRaft controller, with differences: a
reassignment is done only with a live replica to lead; one that is being added counts not for
`min.insync.replicas`, and stays *adding* whatever is asked for meanwhile; one that is being removed
stays where it is named again; and what would leave a partition without a leader is not cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.controller.cluster_config import election_rules
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
)
from oncelog.controller.elections import (
    Election,
    ElectionRules,
    LiveBrokers,
    live_brokers,
    with_replicas,
)
from oncelog.controller.events import (
    AlterReassignments,
    Reassignment,
    ReassignmentOutcome,
    ReplicasRemoved,
)
from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.controller.placement import known_brokers
from oncelog.controller.states import (
    StateChange,
    completed,
    election_notices,
    listed,
    state_writes,
    without_removed,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition

__all__ = ["alter_reassignments", "confirm_removals"]


def alter_reassignments(
    image: MetadataImage, event: AlterReassignments, context: DecisionContext
) -> ControllerDecision[tuple[ReassignmentOutcome, ...]]:
    """Begin, change or cancel each reassignment by itself, as if those before it were written."""
    reply = []
    changes: dict[TopicPartition, StateChange] = {}
    for asked in event.partitions:
        outcome, election = _altered(image, asked, changes, event.allows_factor_change)
        reply.append(outcome)
        before = image.partition(*asked.partition)
        if before is not None and election is not None:
            earlier = changes.get(asked.partition)
            both = earlier.election.then(election) if earlier else election
            changes[asked.partition] = StateChange(asked.partition, before, both)
    changed = [one for one in changes.values() if one.election.state != one.before]
    notices = []
    if changed:
        text = f"reassigned {listed([_told(one) for one in changed])}"
        notices = [ControllerNotice(text), *election_notices(changed)]
    return ControllerDecision(tuple(reply), state_writes(image, changed), tuple(notices))


def _told(change: StateChange) -> str:
    state = change.election.state
    goal = [broker for broker in state.replicas if broker not in state.removing]
    return f"{change.label} to {goal}"


def _altered(
    image: MetadataImage,
    asked: Reassignment,
    changes: dict[TopicPartition, StateChange],
    allows_factor_change: bool,
) -> tuple[ReassignmentOutcome, Election | None]:
    label = asked.partition
    topic = image.topic(label.topic)
    before = image.partition(*label)
    if topic is None or before is None:
        what = f"a topic named {label.topic}" if topic is None else f"partition {label}"
        text = f"Unable to find {what}."
        return ReassignmentOutcome(label, ErrorCode.unknown_topic_or_partition, text), None
    state = changes[label].election.state if label in changes else before
    live, rules = live_brokers(image), election_rules(topic.config, image.cluster_config)
    if asked.replicas is None:
        found = _cancelled(state, live, rules)
    elif (refusal := _refusal(image, state, asked.replicas, allows_factor_change)) is not None:
        found = refusal
    else:
        found = _begun(state, asked.replicas, live, rules)
    if isinstance(found, ChangeOutcome):
        return ReassignmentOutcome(label, found.error, found.message), None
    return ReassignmentOutcome(label), found


def _refusal(
    image: MetadataImage,
    state: PartitionImage,
    replicas: Sequence[int],
    allows_factor_change: bool,
) -> ChangeOutcome | None:
    """Return why no partition can have these replicas; None where one can."""
    invalid = ErrorCode.invalid_replica_assignment
    if not replicas:
        text = "The manual partition assignment includes an empty replica list."
        return ChangeOutcome(invalid, text)
    known = known_brokers(image)
    earlier = None
    for broker in sorted(replicas):
        if broker not in known:
            text = (
                f"The manual partition assignment includes broker {broker}, but no such broker is "
                "registered."
            )
            return ChangeOutcome(invalid, text)
        if broker == earlier:
            text = f"The manual partition assignment includes the broker {broker} more than once."
            return ChangeOutcome(invalid, text)
        earlier = broker
    count = len(state.replicas) - len(state.removing)
    if not allows_factor_change and len(replicas) != count:
        text = f"The replication factor is changed from {count} to {len(replicas)}"
        return ChangeOutcome(ErrorCode.invalid_replication_factor, text)
    return None


def _begun(
    state: PartitionImage, wanted: tuple[int, ...], live: LiveBrokers, rules: ElectionRules
) -> Election:
    """Return the state with a reassignment to these replicas, which may be done at once."""
    removing = tuple(sorted({*state.replicas} - {*wanted}))
    replicas = (*wanted, *removing)
    # Those of a reassignment under way have nothing yet either, and a cancellation removes them.
    before = {*state.replicas} - {*state.adding}
    adding = tuple(sorted({*replicas} - before))
    begun = with_replicas(state, replicas, live, rules, adding=adding, removing=removing)
    return completed(begun, live, rules)


def _cancelled(
    state: PartitionImage, live: LiveBrokers, rules: ElectionRules
) -> Election | ChangeOutcome:
    """Return the state without what a reassignment adds, or why it cannot be."""
    if not state.adding and not state.removing:
        text = "No partition reassignment is in progress."
        return ChangeOutcome(ErrorCode.no_reassignment_in_progress, text)
    adding = {*state.adding}
    have_all = {*state.isr, *state.eligible} or {*state.suspects}
    is_unclean = adding >= have_all > set() or adding & state.suspects.keys()
    before = tuple(broker for broker in state.replicas if broker not in adding)
    election = with_replicas(state, before, live, rules)
    loses_leader = election.state.leader == -1 != state.leader
    if loses_leader or (is_unclean and not rules.allows_unclean):
        text = "Unable to revert the assignment: it would require an unclean leader election."
        return ChangeOutcome(ErrorCode.invalid_replica_assignment, text)
    return election


def confirm_removals(
    image: MetadataImage, event: ReplicasRemoved, context: DecisionContext
) -> ControllerDecision[ChangeOutcome]:
    """Take the broker off the removed ones of these partitions, where none is newer."""
    changes = []
    for topic_id, number, epoch in event.replicas:
        topic = image.topic_by_id(topic_id)
        before = None if topic is None else image.partition(topic.name, number)
        if topic is None or before is None or before.leader_epoch != epoch:
            continue  # A deleted topic has a note of its own, and the broker says it again.
        state = without_removed(before, event.broker_id)
        if state is not before:
            changes.append(StateChange(topic.label(number), before, Election(state)))
    return ControllerDecision(ChangeOutcome(), state_writes(image, changes))
