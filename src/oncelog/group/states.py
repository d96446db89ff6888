"""Defines the states of a classic group and its legal moves (Kafka's `ClassicGroupState`)."""

from enum import Enum


class GroupState(Enum):
    """A group's state; the value is Kafka's spelling in DescribeGroups and ListGroups.

    There is no Dead state: a deleted group leaves the shard at once, and one that does not exist is
    described as "Dead".
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"

    # A state is a singleton; Enum would hash its name by a Python function.
    __hash__ = object.__hash__


MOVES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
}
"""The legal moves from each state. Any other move is a bug."""

DEAD = "Dead"


def may_rebalance(state: GroupState) -> bool:
    """Whether a rebalance can start in this state; not while one is being prepared."""
    return GroupState.PREPARING_REBALANCE in MOVES[state]
