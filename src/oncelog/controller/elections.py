"""Decides who leads a partition: pure functions from one state of it to the next.

Every record below a high watermark is in the log of each member of the ISR, and of each *eligible*
broker (KIP-966), so that any of them may lead. A broker becomes eligible when its leaving takes the
ISR below `min.insync.replicas`, or when it leaves while the ISR is below: from then on the high
watermark stands. The set is emptied when the ISR is back there. Who leaves an ISR that stays large
enough is not eligible, because the high watermark goes on without it.

The table has the moves of a partition whose replicas are on the brokers 1, 2 and 3, with
`min.insync.replicas=2`. A state is ``leader: ISR (eligible) {suspects} [off line]``; ``-`` is no
leader, and ``1 to 9`` a suspect whose log ends at 9. *Live* are the brokers that may be elected
after the event. A broker that is *doubted* came back and may have lost the end of its log.

===================  =====  =============================  =====================
state                live   event                          next
===================  =====  =============================  =====================
1: 1 2 3             1 2    3 is gone                      1: 1 2
1: 1 2               1 3    2 is gone                      1: 1 (2)
1: 1 2 3             1      2 and 3 are gone               1: 1 (2 3)
1: 1 2 3             2 3    1 is gone                      2: 2 3, new epoch
1: 1 (2 3)           2 3    1 is gone                      2: 2 (1 3), new epoch
1: 1 (2)             3      1 is gone                      -: 1 (2), new epoch
1: 1 2               3      1 and 2 are gone               -: 1 2, new epoch
-: 1 2               2 3    2 is back                      2: 2 (1), new epoch
-: 1 (2)             2 3    2 is back                      2: 2 (1), new epoch
1: 1 2 3             1 2 3  2 is back                      1: 1 3
1: 1 2 3             1 2 3  1 is back                      2: 2 3, new epoch
1: 1 (2)             1 2 3  1 is back                      1: 1 (2), new epoch
1: 1 2 3             1 2 3  3 is back, doubted to 9        1: 1 2
1: 1 (2)             1 2 3  2 is back, doubted to 9        1: 1
1: 1                 1 2 3  1 is back, doubted to 9        1: 1, new epoch
1: 1 (2)             1 2 3  1 is back, doubted to 9        2: 2, new epoch
-: 1 2               1 3    1 is back, doubted to 9        -: 2 {1 to 9}
-: 2 {1 to 9}        1 2 3  2 is back                      2: 2, new epoch
-: 2 {1 to 9}        1 2 3  2 is back, doubted to 7        1: 1, new epoch
-: 2 {1 to 9}        2 3    2 is back, doubted to 7        -: {1 to 9, 2 to 7}
-: {1 to 9, 2 to 7}  1 2 3  1 is back                      1: 1, new epoch
-: 2 {1 to ?}        1 2 3  2 is back, doubted to 7        -: {1 to ?, 2 to 7}
-: {1 to ?, 2 to 7}  1 2 3  1 is back, doubted to 5        2: 2, new epoch
1: 1 2               1 2 3  1 shuts down                   2: 2 (1), new epoch
1: 1 2               1 2 3  2 shuts down                   1: 1 (2)
1: 1                 1 2 3  1 shuts down                   1: 1
1: 1 2               1 2 3  1 loses its directory          2: 2 [1], new epoch
1: 1                 1 2 3  1 loses its directory          -: 1 [1], new epoch
-: 1 [1]             1 2 3  1 is back                      1: 1, new epoch
2: 2 [1]             1 2 3  1 begins without records       2: 2
-: (2) [1]           1 3    1 begins without records       -: (2)
-: 1 [1]             1 2 3  1 begins without records       -: 1 [1]
1: 1 (2)             1 2 3  1 asks for 1 3                 1: 1 3
1: 1 2 3             1 2 3  1 asks for 1 2                 1: 1 2
1: 1 2 3             1 2 3  1 asks for 1                   1: 1 (2 3)
2: 1 2 3             1 2 3  1 is preferred                 1: 1 2 3, new epoch
1: 1 (2)             1 2 3  min.insync.replicas becomes 1  1: 1
-: 1 (2)             3      unclean elections are allowed  3: 3, new epoch
-: {1 to 7, 2 to ?}  1 3    unclean elections are allowed  1: 1, new epoch
1: 1 (2)             1 3    2 is forgotten                 1: 1
-: 1 2               3      1 is forgotten                 -: 2
-: 2 {1 to 9}        3      1 is forgotten                 -: 2
-: {1 to 7, 2 to 9}  1 3    2 is forgotten                 -: {1 to 7, 2 to 9}
-: 1                 2 3    1 is forgotten                 -: 1
===================  =====  =============================  =====================
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.core.limits import INT32_MAX

__all__ = [
    "Election",
    "ElectionRules",
    "Life",
    "LiveBrokers",
    "Manner",
    "after_failure",
    "after_other_rules",
    "after_registration",
    "after_renewal",
    "led_by",
    "live_brokers",
    "settled",
    "with_isr",
    "with_replicas",
    "without_broker",
]


class LiveBrokers(NamedTuple):
    """The brokers that are registered, and about which nothing is left to decide."""

    able: frozenset[int]
    """Those that may be elected."""
    serving: frozenset[int]
    """These, and those that are shutting down."""

    def without(self, broker_id: int) -> LiveBrokers:
        """Return those that may be elected instead of a broker."""
        return LiveBrokers(self.able - {broker_id}, self.serving)

    def including(self, broker_id: int) -> LiveBrokers:
        """Return them with the broker that this decision is about."""
        return LiveBrokers(self.able | {broker_id}, self.serving | {broker_id})


def live_brokers(image: MetadataImage) -> LiveBrokers:
    """Return the live brokers of an image."""
    serving = {broker.broker_id for broker in image.brokers.values() if broker.is_clean}
    stopping = {broker.broker_id for broker in image.brokers.values() if broker.is_shutting_down}
    return LiveBrokers(frozenset(serving - stopping), frozenset(serving))


class ElectionRules(NamedTuple):
    """The configs of a topic that decide on elections."""

    min_insync_replicas: int = 1
    allows_unclean: bool = False
    allows_added: bool = False
    """Whether that includes replicas that are being added: only where an operator asks for it."""


class Manner(Enum):
    """How a partition came to the leader that it has after a decision."""

    CLEAN = "the leader has every committed record, or there is none"
    SUSPECT = "all that may have every committed record stopped uncleanly; this one has most"
    UNCLEAN = "the leader may lack committed records, and was allowed to lead"


class Election(NamedTuple):
    """A state after an event, the same object where nothing changed; and how its leader came."""

    state: PartitionImage
    manner: Manner = Manner.CLEAN

    def then(self, later: Election) -> Election:
        """Return both in one, where the later one began with this state.

        What the first leader lacks is lost, whichever broker leads after it.
        """
        is_clean = later.manner is Manner.CLEAN
        return Election(later.state, self.manner if is_clean else later.manner)


class Life(NamedTuple):
    """What a broker that has begun a life says of its replica of a partition."""

    broker_id: int
    is_doubtful: bool
    """Whether its log may have lost its end."""
    log: tuple[int, int] | None
    """The last leader epoch in the log and its end, where the broker has said so."""
    is_off_line: bool


def settled(state: PartitionImage, live: LiveBrokers, rules: ElectionRules) -> Election:
    """Return the state that relies on live brokers only, as far as there are any."""
    after, manner = _settled(state, live, rules)
    return Election(_numbered(state, after), manner)


def after_registration(
    state: PartitionImage, life: Life, live: LiveBrokers, rules: ElectionRules
) -> Election:
    """Return the state after a broker has begun a life, which ended the one before.

    What it led it leads again only where no other member is live, and in a new epoch. A log that
    may have lost its end leaves the ISR and the eligible ones. Where no other can lead it is a
    suspect from then on, whatever its broker says in later lives.
    """
    me = life.broker_id
    led = state.leader == me
    if led and state.replicas == (me,) and not (life.is_doubtful or life.is_off_line):
        return Election(state)  # A lone broker that stopped cleanly.
    last_epoch, _ = life.log or (-1, 0)
    begun = replace(
        state,
        leader=-1 if led else state.leader,
        leader_epoch=max(state.leader_epoch, last_epoch),
        offline_replicas=_minus(state.offline_replicas, me),
    )
    others = live.without(me)
    if me in state.suspects and life.log is not None:
        begun = replace(begun, suspects={**state.suspects, me: life.log})
    if life.is_doubtful:
        begun = _doubted(begun, life, others)
    elif _able(begun, others, begun.isr):
        begun, _ = _settled(begun, others, rules)
    if life.is_off_line:
        begun = _off_line(begun, me)
    after, manner = _settled(begun, live.including(me), rules)
    return Election(_numbered(state, after, renews=led), manner)


def after_failure(
    state: PartitionImage, broker_id: int, live: LiveBrokers, rules: ElectionRules
) -> Election:
    """Return the state after the log directory of a replica has failed.

    As in Kafka, it stays in the ISR where it is the last member. It cannot lead before its broker
    has registered again.
    """
    if broker_id in state.offline_replicas:
        return Election(state)
    after, manner = _settled(_off_line(state, broker_id), live, rules)
    return Election(_numbered(state, after), manner)


def after_renewal(
    state: PartitionImage, broker_id: int, live: LiveBrokers, rules: ElectionRules
) -> Election:
    """Return the state after a replica that was off line begins again, without records.

    Unchanged unless another member of the ISR or eligible broker has every committed record.
    """
    if broker_id not in state.offline_replicas or not {*state.isr, *state.eligible} - {broker_id}:
        return Election(state)
    begun = replace(
        state,
        isr=_minus(state.isr, broker_id),
        eligible=_minus(state.eligible, broker_id),
        suspects={broker: log for broker, log in state.suspects.items() if broker != broker_id},
        offline_replicas=_minus(state.offline_replicas, broker_id),
    )
    after, manner = _settled(begun, live, rules)
    return Election(_numbered(state, after), manner)


def without_broker(
    state: PartitionImage, gone: int, live: LiveBrokers, rules: ElectionRules
) -> Election | None:
    """Return the state after a broker is gone for good; None: it alone may have some records.

    Another member of the ISR or eligible broker has them all, unless its log is off line. Of
    suspects the one that is gone may be left out where another's log is known to go as far.
    """
    have_all = {*state.isr, *state.eligible}
    if gone not in have_all and gone not in state.suspects:
        return Election(state)
    if not have_all - {gone, *state.offline_replicas}:
        log = state.suspects.get(gone)
        others = [found for broker, found in state.suspects.items() if broker != gone]
        if gone in have_all or log is None:
            return None
        if not any(found is not None and found >= log for found in others):
            return None
    left = replace(
        state,
        isr=_minus(state.isr, gone),
        eligible=_minus(state.eligible, gone),
        suspects={broker: found for broker, found in state.suspects.items() if broker != gone},
    )
    after, manner = _settled(left, live, rules)
    return Election(_numbered(state, after), manner)


def with_isr(state: PartitionImage, isr: tuple[int, ...], rules: ElectionRules) -> PartitionImage:
    """Return the state with the ISR that its leader asks for."""
    return _numbered(state, _moved(state, rules, state.leader, isr))


def with_replicas(
    state: PartitionImage,
    replicas: tuple[int, ...],
    live: LiveBrokers,
    rules: ElectionRules,
    *,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> Election:
    """Return the state with another assignment.

    Who has no replica any more leads no more, and may have a folder of the partition until it says
    otherwise. A new leader epoch begins then, as in Kafka: within one no broker leaves the
    assignment, so that no fetch from before a removal counts once the replica is added again. So it
    does where a lone replica gets others, because it may have led in several lives by one state.
    """
    placed = {*replicas}
    lost = {*state.replicas} - placed
    left = replace(
        state,
        isr=tuple(broker for broker in state.isr if broker in placed),
        replicas=replicas,
        offline_replicas=tuple(broker for broker in state.offline_replicas if broker in placed),
        eligible=tuple(broker for broker in state.eligible if broker in placed),
        suspects={broker: log for broker, log in state.suspects.items() if broker in placed},
        adding=adding,
        removing=removing,
        removed=tuple(sorted({*state.removed, *lost} - placed)),
    )
    after, manner = _settled(left, live, rules)
    is_lone_no_more = len(state.replicas) == 1 < len(replicas)
    return Election(_numbered(state, after, renews=bool(lost) or is_lone_no_more), manner)


def led_by(
    state: PartitionImage, leader: int, live: LiveBrokers, rules: ElectionRules
) -> PartitionImage | None:
    """Return the state led by a live member of the ISR; None where it is none."""
    if not _able(state, live, {leader} & {*state.isr}):
        return None
    return _numbered(state, _moved(state, rules, leader, state.isr))


def after_other_rules(
    state: PartitionImage, live: LiveBrokers, before: ElectionRules, rules: ElectionRules
) -> Election:
    """Return the state after a change of its topic's rules.

    Who was eligible by one `min.insync.replicas` is not by another, since the high watermark may
    move then. A partition without a leader gets one as soon as an unclean election is allowed.
    """
    after, manner = state, Manner.CLEAN
    if before.min_insync_replicas != rules.min_insync_replicas:
        after = replace(state, eligible=())
    if state.leader == -1:
        after, manner = _settled(after, live, rules)
    return Election(_numbered(state, after), manner)


def _settled(
    state: PartitionImage, live: LiveBrokers, rules: ElectionRules
) -> tuple[PartitionImage, Manner]:
    """As `settled`, but with the epochs of before."""
    members = _able(state, live, state.isr)
    if members:
        leader = state.leader if state.leader in members else members[0]
        isr = tuple(broker for broker in state.isr if broker in members)
        return _moved(state, rules, leader, isr), Manner.CLEAN
    eligible = _able(state, live, state.eligible)
    if eligible:
        return _moved(state, rules, eligible[0], (eligible[0],)), Manner.CLEAN
    if _serves_on(state, live):
        isr = tuple(broker for broker in state.isr if broker in live.serving)
        return _moved(state, rules, state.leader, isr), Manner.CLEAN
    able = _able(state, live, state.replicas)
    best = _best_suspect(state)
    if best in able:
        return _alone(state, best), Manner.SUSPECT
    if rules.allows_unclean:
        # One that is being added may have nothing at all.
        able = [
            broker for broker in able if broker not in state.adding
        ] or able * rules.allows_added
        if able:
            return _alone(state, _most(state, able)), Manner.UNCLEAN
    if state.leader == -1:
        return state, Manner.CLEAN
    return replace(state, leader=-1), Manner.CLEAN


def _able(state: PartitionImage, live: LiveBrokers, among: Sequence[int] | Set[int]) -> list[int]:
    """Return those among some brokers that can lead, in the order of the assignment."""
    able = [broker for broker in state.replicas if broker in among and broker in live.able]
    if state.offline_replicas:
        return [broker for broker in able if broker not in state.offline_replicas]
    return able


def _serves_on(state: PartitionImage, live: LiveBrokers) -> bool:
    """Whether the leader is shutting down: it leads until it is gone where no other can."""
    leader = state.leader
    return leader in live.serving and leader in state.isr and leader not in state.offline_replicas


def _best_suspect(state: PartitionImage) -> int:
    """Return the suspect whose log goes furthest; -1 before all that may lead are suspects.

    The last epochs of two logs decide before their ends.
    """
    logs = state.suspects
    if state.isr or state.eligible or not logs or None in logs.values():
        return -1
    return _most(state, [broker for broker in state.replicas if broker in logs])


def _most(state: PartitionImage, brokers: Sequence[int]) -> int:
    """Return the broker with the most records as far as is known; the first of equal ones."""
    return max(brokers, key=lambda broker: state.suspects.get(broker) or (-1, -1), default=-1)


def _alone(state: PartitionImage, leader: int) -> PartitionImage:
    """Return a state led by one that need not have every committed record: no other has more.

    Its epoch will be above the last one in its log, which the metadata may not know.
    """
    last_epoch, _ = state.suspects.get(leader) or (-1, 0)
    return replace(
        state,
        leader=leader,
        leader_epoch=max(state.leader_epoch, last_epoch),
        isr=(leader,),
        eligible=(),
        suspects={},
    )


def _moved(
    state: PartitionImage, rules: ElectionRules, leader: int, isr: tuple[int, ...]
) -> PartitionImage:
    """Return the state with a leader and an ISR that have every committed record."""
    eligible: tuple[int, ...] = ()
    if len(isr) < min(rules.min_insync_replicas, state.settled_count):
        have_all = {*state.eligible, *state.isr} - {*isr, *state.offline_replicas}
        eligible = tuple(broker for broker in state.replicas if broker in have_all)
    return PartitionImage(
        leader,
        state.leader_epoch,
        isr,
        state.replicas,
        state.offline_replicas,
        state.partition_epoch,
        eligible,
        adding=state.adding,
        removing=state.removing,
        removed=state.removed,
        unknown_fields=state.unknown_fields,
    )


def _doubted(state: PartitionImage, life: Life, others: LiveBrokers) -> PartitionImage:
    """Return the state without a broker among those that have every committed record."""
    me = life.broker_id
    had_all = {*state.isr, *state.eligible, *state.suspects}
    left = replace(state, isr=_minus(state.isr, me), eligible=_minus(state.eligible, me))
    if me not in had_all or _able(left, others, {*left.isr, *left.eligible}):
        return left
    if _serves_on(left, others):
        return left
    log = life.log or (state.suspects.get(me) if life.is_off_line else None)
    return replace(left, suspects={**state.suspects, me: log})


def _off_line(state: PartitionImage, broker_id: int) -> PartitionImage:
    return replace(
        state,
        offline_replicas=tuple(sorted({*state.offline_replicas, broker_id})),
        eligible=_minus(state.eligible, broker_id),
    )


def _minus(brokers: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker != broker_id)


def _numbered(
    before: PartitionImage, after: PartitionImage, *, renews: bool = False
) -> PartitionImage:
    """Return a state with its epochs: what has not changed keeps them.

    `renews` says that a leader which stays leads in a new life. The epoch of `after` is the largest
    that is known: the next one is above it.
    """
    if after.leader == before.leader and not renews:
        epoch = before.leader_epoch
        same = after if after.leader_epoch == epoch else replace(after, leader_epoch=epoch)
        if same == before:
            return before
    else:
        # A damaged batch may have the largest epoch there is: it stays.
        epoch = min(after.leader_epoch + 1, INT32_MAX)
    return PartitionImage(
        after.leader,
        epoch,
        after.isr,
        after.replicas,
        after.offline_replicas,
        before.partition_epoch + 1,
        after.eligible,
        after.suspects,
        after.adding,
        after.removing,
        after.removed,
        after.unknown_fields,
    )
