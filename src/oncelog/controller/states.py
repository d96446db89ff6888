"""Brings the states of many partitions in order at once: their writes, and what the log says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog.controller import layout
from oncelog.controller.cluster_config import election_rules
from oncelog.controller.decision import ControllerNotice, Put
from oncelog.controller.elections import (
    Election,
    ElectionRules,
    LiveBrokers,
    Manner,
    after_other_rules,
    live_brokers,
    settled,
    with_replicas,
)
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.ids import TopicPartition

__all__ = [
    "StateChange",
    "changed_rules",
    "changed_states",
    "completed",
    "elected_by",
    "election_notices",
    "leaders_checked",
    "listed",
    "state_writes",
    "without_removed",
]

NAMED_COUNT_MAX = 5
"""Partitions that one message names."""


class StateChange(NamedTuple):
    """A partition whose state an event changes."""

    label: TopicPartition
    before: PartitionImage
    election: Election


def completed(election: Election, live: LiveBrokers, rules: ElectionRules) -> Election:
    """Return the state with its reassignment done, where the ISR has all replicas that stay."""
    state = election.state
    if not state.adding and not state.removing:
        return election
    goal = tuple(broker for broker in state.replicas if broker not in state.removing)
    if not {*state.isr}.issuperset(goal):
        return election
    done = with_replicas(state, goal, live, rules).state
    return election if done.leader == -1 else Election(done, election.manner)


def without_removed(state: PartitionImage, broker_id: int) -> PartitionImage:
    """Return the state once a broker has no folder of the partition.

    No leader acts on that: the epochs stay.
    """
    if broker_id not in state.removed:
        return state
    removed = tuple(broker for broker in state.removed if broker != broker_id)
    return replace(state, removed=removed)


def changed_states(
    image: MetadataImage,
    live: LiveBrokers,
    concerns: Callable[[PartitionImage], bool],
    change: Callable[[TopicPartition, PartitionImage, ElectionRules], Election],
    cluster_config: Mapping[str, str] | None = None,
) -> list[StateChange]:
    """Return what changes where something does, of the partitions that an event concerns.

    `cluster_config` are the cluster's configs after the event, where it changes them.
    """
    config = image.cluster_config if cluster_config is None else cluster_config
    found = []
    for topic in image.topics.values():
        rules = None
        for number, before in enumerate(topic.partitions):
            if concerns(before):
                rules = rules or election_rules(topic.config, config)
                label = topic.label(number)
                election = completed(change(label, before, rules), live, rules)
                if election.state is not before:
                    found.append(StateChange(label, before, election))
    return found


def leaders_checked(image: MetadataImage, live: LiveBrokers) -> list[StateChange]:
    """Return the changes that bring every partition in order with the live brokers."""
    able = live.able

    def relies_on_others(state: PartitionImage) -> bool:
        return state.leader not in able or not able.issuperset(state.isr)

    return changed_states(
        image, live, relies_on_others, lambda label, state, rules: settled(state, live, rules)
    )


def changed_rules(
    image: MetadataImage, topic: TopicImage, config: Mapping[str, str]
) -> list[StateChange]:
    """Return what other configs of a topic change in its partitions."""
    before = election_rules(topic.config, image.cluster_config)
    rules = election_rules(config, image.cluster_config)
    if before == rules:
        return []
    live = live_brokers(image)
    found = []
    for label, state in zip(topic.topic_partitions(), topic.partitions, strict=True):
        election = after_other_rules(state, live, before, rules)
        if election.state is not state:
            found.append(StateChange(label, state, election))
    return found


def state_writes(image: MetadataImage, changes: Iterable[StateChange]) -> tuple[Put, ...]:
    """Return the writes of changed states, and then of topics of which the replicas have changed.

    Of a topic that is to monitors only: the states decide, each by itself.
    """
    epoch = image.controller_epoch
    writes = []
    moved: dict[str, list[PartitionImage]] = {}
    for label, before, election in changes:
        state = election.state
        writes.append(Put(layout.state_path(*label), layout.encode_state(state, epoch)))
        if _assigned(state) != _assigned(before):
            topic = image.topics[label.topic]
            states = moved.setdefault(label.topic, list(topic.partitions))
            states[label.partition] = state
    for name, states in moved.items():
        topic = replace(image.topics[name], partitions=tuple(states))
        writes.append(Put(layout.topic_path(name), layout.encode_topic(topic)))
    return tuple(writes)


def _assigned(state: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing


class Elected(NamedTuple):
    """How many partitions got another leader than before."""

    leaders_count: int
    unclean_count: int
    """Those whose leader may lack acknowledged records."""


def elected_by(image: MetadataImage, writes: Iterable[Put]) -> Elected:
    """Count the elections in the writes of a decision; new partitions have had none."""
    leaders_count = unclean_count = 0
    for path, value in writes:
        if value is None or not path.startswith(layout.TOPICS_PREFIX):
            continue
        name, number = layout.partition_of(path)
        before = None if number is None else image.partition(name, number)
        if before is None:
            continue
        after = layout.decode_state(value)
        if after.leader not in (-1, before.leader):
            leaders_count += 1
            unclean_count += after.leader not in {*before.isr, *before.eligible}
    return Elected(leaders_count, unclean_count)


def election_notices(changes: Iterable[StateChange]) -> Iterator[ControllerNotice]:
    """Say which partitions may have lost acknowledged records by their election.

    Left out is a lone replica that had every record and lost its end: no other has more. One that
    others left with their records is said.
    """
    changes = [one for one in changes if not _had_all_alone(one)]
    by_logs = [one for one in changes if one.election.manner is Manner.SUSPECT]
    if by_logs:
        yield ControllerNotice(
            f"{len(by_logs)} partitions are led by the longest log that is left, since every "
            "in-sync replica stopped uncleanly; acknowledged records at its end may be lost: "
            + _led(by_logs),
            is_warning=True,
        )
    unclean = [one for one in changes if one.election.manner is Manner.UNCLEAN]
    if unclean:
        yield ControllerNotice(
            f"unclean election in {len(unclean)} partitions, since none of the replicas with "
            f"every acknowledged record is live: {_led(unclean)}",
            is_warning=True,
        )


def _had_all_alone(change: StateChange) -> bool:
    before, after = change.before, change.election.state
    is_lone = len({*before.replicas, *after.replicas}) == 1
    return is_lone and after.leader in {*before.isr, *before.eligible}


def listed(things: Sequence[object]) -> str:
    """Name some things, or the first of many."""
    named = [str(one) for one in things[:NAMED_COUNT_MAX]]
    more = len(things) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _led(changes: list[StateChange]) -> str:
    return listed([f"{one.label} by broker {_leader(one)}" for one in changes])


def _leader(change: StateChange) -> str:
    """The new leader, and what is known of the logs that went further, or may have."""
    leader = change.election.state.leader
    ends = {broker: log[1] for broker, log in change.before.suspects.items() if log is not None}
    if change.election.manner is Manner.SUSPECT:
        return str(leader)
    if not ends:
        return f"{leader} (how many acknowledged records are lost is not known)"
    known = ", ".join(f"that of broker {broker} to {end}" for broker, end in sorted(ends.items()))
    return f"{leader} (of the logs known, {known})"
