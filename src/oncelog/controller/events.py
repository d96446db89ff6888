"""The events that the controller decides on. `oncelog.controller.decisions` has the table of them.

The first ones are requests of clients, the others are reports of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.controller.changes import ConfigChange
from oncelog.controller.decision import ChangeOutcome, ControllerEvent
from oncelog.controller.features import FeatureUpdate
from oncelog.controller.image import PartitionImage
from oncelog.controller.topics import TopicOutcome, TopicToCreate
from oncelog.core.acl import Acl, AclFilter
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId, TopicPartition
from oncelog.core.secret import Secret

__all__ = [
    "AclDeletion",
    "AclOutcome",
    "AlterClientQuotas",
    "AlterGroupConfigs",
    "AlterPartition",
    "AlterReassignments",
    "AlterScramCredentials",
    "AlterTopicConfigs",
    "BrokerRegistered",
    "BrokerShuttingDown",
    "BrokersChanged",
    "CreateAcls",
    "CreatePartitions",
    "CreateTopics",
    "DeleteAcls",
    "DeleteTopic",
    "DeletionsConfirmed",
    "DirectoryFailed",
    "ElectLeaders",
    "ElectionOutcome",
    "ForgetBroker",
    "IsrChange",
    "IsrMember",
    "IsrOutcome",
    "LedCoordinator",
    "OffLineReplica",
    "QuotaAlteration",
    "QuotaChange",
    "QuotaOutcome",
    "Reassignment",
    "ReassignmentOutcome",
    "RemovedReplica",
    "ReplicasMadeAgain",
    "ReplicasRemoved",
    "ScramDeletion",
    "ScramOutcome",
    "ScramUpsertion",
    "ShutdownOutcome",
    "UpdateFeatures",
]


class IsrMember(NamedTuple):
    """A broker in the ISR that is asked for, in the life in which it caught up (KIP-903)."""

    broker_id: int
    broker_epoch: int


class IsrChange(NamedTuple):
    """The ISR that a leader asks for, and the state of the partition that it knows."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


class IsrOutcome(NamedTuple):
    """The state after a change of the ISR, or the error that refuses it."""

    error: ErrorCode = ErrorCode.none
    state: PartitionImage | None = None


class Reassignment(NamedTuple):
    """The replicas that a partition is to have; None cancels what is under way."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None


class ReassignmentOutcome(NamedTuple):
    """What became of the request for one partition."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.none
    message: str | None = None


class RemovedReplica(NamedTuple):
    """A partition that has no replica on a broker any more, by the state that says so.

    Each removal begins a leader epoch: what a broker says of an earlier one counts not.
    """

    topic_id: TopicId
    partition: int
    leader_epoch: int


class OffLineReplica(NamedTuple):
    """A partition with a replica on a broker that has it off line, by a state that says so."""

    topic_id: TopicId
    partition: int
    partition_epoch: int


class QuotaChange(NamedTuple):
    """A key of a quota, and its value as text; None removes it."""

    key: str
    value: str | None


class QuotaAlteration(NamedTuple):
    """Changes of one entity's quotas: its types and names as asked for, None is the default."""

    entity: tuple[tuple[str, str | None], ...]
    changes: tuple[QuotaChange, ...]


class QuotaOutcome(NamedTuple):
    """What became of an alteration."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None


class ScramDeletion(NamedTuple):
    """A credential to delete; `mechanism` as in Kafka's request."""

    user: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to set: the keys in base64, never the password or what stands for it."""

    user: str
    mechanism: int
    iterations: int
    salt: Secret
    stored_key: Secret
    server_key: Secret


class ScramOutcome(NamedTuple):
    """What became of a user's credential."""

    user: str
    error: ErrorCode = ErrorCode.none
    message: str | None = None


class AclOutcome(NamedTuple):
    """What became of an ACL to set."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None


class AclDeletion(NamedTuple):
    """The ACLs that a filter has deleted."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    acls: tuple[Acl, ...] = ()


class LedCoordinator(NamedTuple):
    """A partition of an internal topic in one leadership of its broker."""

    topic: str
    partition: int
    leader_epoch: int


class ShutdownOutcome(NamedTuple):
    """How many partitions a broker that shuts down still leads, since no other can."""

    error: ErrorCode = ErrorCode.none
    remaining_count: int = 0


class ElectionOutcome(NamedTuple):
    """What an election of one partition came to."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTopics(ControllerEvent[tuple[TopicOutcome, ...]]):
    """Topics to create, each by itself."""

    topics: tuple[TopicToCreate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitions(ControllerEvent[ChangeOutcome]):
    """A topic that is to have `count` partitions; `assignments` places the new ones."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterTopicConfigs(ControllerEvent[ChangeOutcome]):
    """Configs of a topic to change; with `replaces` they replace all that it overrides."""

    name: str
    changes: tuple[ConfigChange, ...]
    replaces: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterGroupConfigs(ControllerEvent[ChangeOutcome]):
    """Configs of a group to change; with `replaces` they replace all that it overrides."""

    group_id: str
    changes: tuple[ConfigChange, ...]
    replaces: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic(ControllerEvent[ChangeOutcome]):
    """A topic to delete, by its identity."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UpdateFeatures(ControllerEvent[ChangeOutcome]):
    """Levels of features to finalize: all of them, or none."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ElectLeaders(ControllerEvent[tuple[ElectionOutcome, ...]]):
    """Elections that an operator asks for, each by itself; None: in every partition that needs one.

    Elects the preferred leader, or with `is_unclean` any live replica where there is no leader.
    """

    partitions: tuple[TopicPartition, ...] | None
    is_unclean: bool = False


@dataclass(frozen=True, slots=True)
class AlterReassignments(ControllerEvent[tuple[ReassignmentOutcome, ...]]):
    """Reassignments to begin or to cancel, each by itself (KIP-455).

    Without `allows_factor_change` none may have another replication factor (KIP-860).
    """

    partitions: tuple[Reassignment, ...]
    allows_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class AlterClientQuotas(ControllerEvent[tuple[QuotaOutcome, ...]]):
    """Quotas of users and clients to set and to remove, each entity's by itself (KIP-546)."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterScramCredentials(ControllerEvent[tuple[ScramOutcome, ...]]):
    """Credentials of users to delete and to set, each user's by itself (KIP-554).

    `secret` is fresh, in hexadecimal: it becomes the cluster's, if that has none.
    """

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]
    secret: Secret


@dataclass(frozen=True, slots=True)
class CreateAcls(ControllerEvent[tuple[AclOutcome, ...]]):
    """ACLs to set, each by itself."""

    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls(ControllerEvent[tuple[AclDeletion, ...]]):
    """ACLs to delete: all that any of these filters selects."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class ForgetBroker(ControllerEvent[ChangeOutcome]):
    """A broker is gone for good: no deletion and no partition waits for it any more."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerRegistered(ControllerEvent[ChangeOutcome]):
    """A broker has begun a life, which is the end of the one before. It leads nothing yet.

    Its logs are open, and its registration is in the store.
    """

    broker_id: int
    broker_epoch: int
    directory_ids: frozenset[str]
    """The log directories with its partitions, also those that are away."""
    is_clean: bool
    """Whether it has every record that it acknowledged in earlier lives."""
    uncertain: Mapping[TopicPartition, tuple[int, int]]
    """Logs with the last leader epoch in each (-1 without one), and their ends.

    A lone replica that is here may have lost its end. Of others these are reports: where `is_clean`
    is false, all of its logs are here; so are those of partitions whose suspect it is, and those
    with a later epoch than the metadata.
    """
    levels: Mapping[str, int]
    """The levels of features that its configs demand."""
    cluster_config: Mapping[str, str]
    """Its values of the configs that are the cluster's: `cluster_values`."""
    off_line: frozenset[TopicPartition] = frozenset()
    """Its replicas in log directories that are away, or whose log cannot be read."""


@dataclass(frozen=True, slots=True)
class BrokersChanged(ControllerEvent[ChangeOutcome]):
    """A controller is new, or has seen a registration end.

    Every partition that relies on a broker which is not registered is brought in order.
    """


@dataclass(frozen=True, slots=True)
class BrokerShuttingDown(ControllerEvent[ShutdownOutcome]):
    """A broker is about to stop, and gives up what it leads as far as others can lead."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartition(ControllerEvent[tuple[IsrOutcome, ...]]):
    """The ISRs that a leader asks for, each by itself (KIP-497)."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True)
class DirectoryFailed(ControllerEvent[ChangeOutcome]):
    """A log directory of a broker has failed, with its replicas of these partitions."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReplicasMadeAgain(ControllerEvent[ChangeOutcome]):
    """A broker has no log of these replicas, which were on a disk that was exchanged, and begins.

    It follows there without records, where others have all committed ones by the state it knows.
    """

    broker_id: int
    replicas: tuple[OffLineReplica, ...]


@dataclass(frozen=True, slots=True)
class DeletionsConfirmed(ControllerEvent[ChangeOutcome]):
    """A broker has no folder any more of these deleted topics, for good.

    Nor does any of the coordinators name them that it has asked. Coordinators move: so it says of
    which partitions, and counts only while these are all that the broker leads.
    """

    broker_id: int
    topic_ids: frozenset[TopicId]
    coordinators: frozenset[LedCoordinator] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicasRemoved(ControllerEvent[ChangeOutcome]):
    """A broker has no folder any more of these partitions, of which it was a replica."""

    broker_id: int
    replicas: tuple[RemovedReplica, ...]
