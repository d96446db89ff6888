"""Events in, writes and replies out; an event is a value that can be sent and decided on anew."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.contents import Contents
from oncelog.controller.decision import (
    ChangeOutcome,
    ControllerEvent,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.decisions import DECIDERS, decide
from oncelog.controller.events import (
    AlterClientQuotas,
    AlterGroupConfigs,
    AlterPartition,
    AlterReassignments,
    AlterScramCredentials,
    AlterTopicConfigs,
    BrokerRegistered,
    BrokersChanged,
    BrokerShuttingDown,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    DeleteAcls,
    DeleteTopic,
    DeletionsConfirmed,
    DirectoryFailed,
    ElectLeaders,
    ForgetBroker,
    IsrChange,
    IsrMember,
    OffLineReplica,
    QuotaAlteration,
    QuotaChange,
    Reassignment,
    RemovedReplica,
    ReplicasMadeAgain,
    ReplicasRemoved,
    ScramUpsertion,
    UpdateFeatures,
)
from oncelog.controller.features import (
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FeatureUpdate,
    UpgradeType,
)
from oncelog.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from oncelog.controller.topics import TopicToCreate
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import INT32_MAX
from oncelog.core.secret import Secret
from tests.unit.controller.cluster import broker

NONE = ErrorCode.none
ID, NEW_ID = UUID(int=1), UUID(int=2)
T0 = TopicPartition("t", 0)
MIN_ISR = "min.insync.replicas"
TOPIC = TopicImage("t", ID, (PartitionImage(1, 4, (1, 2), (1, 2)),))
CONTEXT = DecisionContext(BrokerConfig({}), (NEW_ID,))
BROKERS = [broker(broker_id, 0) for broker_id in (1, 2)]
SET = ConfigOperation.SET
REGISTRATION = BrokerRegistered(1, 0, frozenset({"d"}), True, {}, {}, {})

KEY = Secret("aGFsbG8=")
ACL = Acl(
    ResourceType.TOPIC,
    "t",
    PatternType.LITERAL,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
EVENTS: list[ControllerEvent[Any]] = [
    CreateTopics((TopicToCreate("new"),)),
    CreatePartitions("t", 3, ((1, 2), (2, 1))),
    AlterTopicConfigs("t", (ConfigChange("retention.ms", SET, "5"),)),
    AlterGroupConfigs("g", (ConfigChange("consumer.session.timeout.ms", SET, "50000"),)),
    DeleteTopic(ID),
    UpdateFeatures((FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),)),
    replace(REGISTRATION, uncertain={T0: (4, 9)}, cluster_config={MIN_ISR: "2"}),
    DirectoryFailed(1, (T0,)),
    ReplicasMadeAgain(1, (OffLineReplica(UUID(int=5), 0, 0),)),
    DeletionsConfirmed(1, frozenset({UUID(int=9)})),
    ElectLeaders((TopicPartition("v", 0),)),
    AlterReassignments((Reassignment(T0, (2,)),)),
    ReplicasRemoved(2, (RemovedReplica(UUID(int=4), 0, 4),)),
    ForgetBroker(3),
    AlterClientQuotas(
        (QuotaAlteration((("user", "a"),), (QuotaChange("request_percentage", "1"),)),)
    ),
    AlterScramCredentials((), (ScramUpsertion("u", 1, 4096, KEY, KEY, KEY),), KEY),
    CreateAcls((ACL,)),
    DeleteAcls((ANY_ACL,)),
    BrokersChanged(),
    BrokerShuttingDown(1, 0),
    AlterPartition(1, 0, (IsrChange(ID, 0, 4, 0, (IsrMember(1, 0),)),)),
]


def image(
    *topics: TopicImage,
    brokers: int = 2,
    registered: Sequence[BrokerImage] = BROKERS,
    **more: Any,
) -> MetadataImage:
    return MetadataImage(cluster_id="c", topics=topics, brokers=registered[:brokers], **more)


LED_BY_THE_DEAD = TopicImage("u", UUID(int=3), (PartitionImage(3, 4, (3, 1), (3, 1)),))
MOVED = TopicImage("v", UUID(int=4), (PartitionImage(1, 4, (1, 2), (2, 1), removed=(2,)),))
OFF_LINE = TopicImage("w", UUID(int=5), (PartitionImage(2, 4, (2,), (1, 2), (1,)),))
FULL = image(
    *(TOPIC, LED_BY_THE_DEAD, MOVED, OFF_LINE),
    deleted={"old": {UUID(int=9): (1, 2, 3)}},
    acls={"id": ACL._replace(name="u")},
)


def after(before: MetadataImage, writes: tuple[Put, ...]) -> MetadataImage:
    """What the store says once the writes are done."""
    contents = Contents(before)
    entries = [(path, value, 0 if value is None else 1) for path, value in writes]
    contents.take(entries, before.revision + 1)
    return contents.image


def test_every_event_has_its_decider_and_an_example_here() -> None:
    assert {type(event) for event in EVENTS} == set(DECIDERS)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_that_was_sent_elsewhere_gives_the_same_decision(
    event: ControllerEvent[Any],
) -> None:
    sent = pickle.loads(pickle.dumps(event))
    assert sent == event
    decision = decide(FULL, event, CONTEXT)
    assert decision.writes
    assert decide(FULL, sent, CONTEXT) == decision


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_that_is_decided_on_twice_is_written_once(event: ControllerEvent[Any]) -> None:
    """A write whose answer was lost is repeated on the image that it led to."""
    written = after(FULL, decide(FULL, event, CONTEXT).writes)
    again = decide(written, event, CONTEXT)
    if isinstance(event, BrokerRegistered):
        # A second registration is a second life: what it leads it leads in a new epoch.
        assert [put.path for put in again.writes] == [layout.state_path("u", 0)]
    else:
        assert again.writes == ()


@pytest.mark.parametrize(
    "event",
    [
        CreateTopics((TopicToCreate("new"),), validate_only=True),
        CreatePartitions("t", 3, validate_only=True),
        replace(EVENTS[2], validate_only=True),  # type: ignore[type-var]
        replace(EVENTS[3], validate_only=True),  # type: ignore[type-var]
        replace(EVENTS[5], validate_only=True),  # type: ignore[type-var]
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_only_validated_is_not_written(event: ControllerEvent[Any]) -> None:
    decision = decide(FULL, event, CONTEXT)
    errors = (
        [decision.reply.error]
        if isinstance(decision.reply, ChangeOutcome)
        else [one.error for one in decision.reply]
    )
    assert errors == [NONE]
    assert (decision.writes, decision.notices) == ((), ())


def test_without_room_valid_topics_are_refused_and_bad_ones_for_their_own_reason() -> None:
    context = replace(CONTEXT, fresh_ids=(ID, NEW_ID), no_room="the disk is full")
    event = CreateTopics((TopicToCreate("new"), TopicToCreate("a b")))
    decision = decide(image(), event, context)
    assert [outcome.error for outcome in decision.reply] == [
        ErrorCode.kafka_storage_error,
        ErrorCode.invalid_topic_exception,
    ]
    assert decision.reply[0].message == "the disk is full"
    assert decision.writes == ()
    grown = decide(FULL, CreatePartitions("t", 3), context)
    assert (grown.reply.error, grown.writes) == (ErrorCode.kafka_storage_error, ())


# --- a broker registers


def registered(
    before: MetadataImage, **more: Any
) -> tuple[MetadataImage, tuple[ControllerNotice, ...]]:
    decision = decide(before, replace(REGISTRATION, **more), CONTEXT)
    assert decision.reply == ChangeOutcome()
    return after(before, decision.writes), decision.notices


ALONE = PartitionImage(1, 4, (1,), (1,))


def test_a_lone_replica_that_may_have_lost_records_leads_in_a_new_epoch() -> None:
    """Above the metadata's epoch and the log's; another leader's partition keeps its own."""
    other = TopicImage("u", NEW_ID, (PartitionImage(2, 4, (2,), (2,)),))
    uncertain = {T0: (7, 9), TopicPartition("u", 0): (7, 9), TopicPartition("gone", 0): (1, 1)}
    before = image(replace(TOPIC, partitions=(ALONE, ALONE)), other)
    written, notices = registered(before, uncertain=uncertain)
    (first, second) = written.topics["t"].partitions
    assert first == replace(ALONE, leader_epoch=8, partition_epoch=1)
    assert second == ALONE
    assert written.topics["u"] == other
    assert notices == (ControllerNotice("began a new leader epoch in 1 partitions"),)


def test_a_damaged_epoch_in_a_log_does_not_overflow() -> None:
    before = image(replace(TOPIC, partitions=(ALONE,)))
    written, _ = registered(before, uncertain={T0: (INT32_MAX, 9)})
    assert written.topics["t"].partitions[0].leader_epoch == INT32_MAX


def test_a_lone_broker_that_stopped_cleanly_writes_nothing() -> None:
    before = image(replace(TOPIC, partitions=(ALONE,)), directories={1: frozenset({"d"})})
    decision = decide(before, REGISTRATION, CONTEXT)
    assert (decision.writes, decision.notices) == ((), ())


def test_a_registration_that_is_the_same_again_writes_nothing() -> None:
    before = image(directories={1: frozenset({"d"})}, cluster_config={MIN_ISR: "2"}, brokers=1)
    event = replace(REGISTRATION, cluster_config={MIN_ISR: "2"})
    assert decide(before, event, CONTEXT).writes == ()


def test_the_directories_of_a_registration_are_noted_by_broker() -> None:
    before = image(directories={1: frozenset({"a"}), 2: frozenset({"b"})})
    written, _ = registered(before, directory_ids=frozenset({"a", "d"}))
    assert written.directories == {1: frozenset({"a", "d"}), 2: frozenset({"b"})}


def test_levels_that_a_broker_demands_are_finalized() -> None:
    written, notices = registered(image(), levels={TRANSACTION_VERSION: 1})
    assert written.chosen_features == {TRANSACTION_VERSION: 1}
    assert notices == (ControllerNotice("the level of transaction.version is 1 from now on"),)
    decision = decide(image(), replace(REGISTRATION, levels={TRANSACTION_VERSION: 9}), CONTEXT)
    assert decision.reply.error is ErrorCode.invalid_update_version
    assert decision.writes == ()


def test_a_level_that_a_registered_broker_does_not_support_is_refused() -> None:
    """Of an upgrade of brokers one by one: the last one knows the level before, or no feature."""
    last = broker(2, levels={TRANSACTION_VERSION: (0, 1)})
    mixed = image(features={TRANSACTION_VERSION: 1, GROUP_VERSION: 0}, registered=[broker(1), last])
    for name, level, reason in (
        (TRANSACTION_VERSION, 2, "Broker 2 only supports versions 0-1"),
        (GROUP_VERSION, 1, "Broker 2 does not support this feature."),
    ):
        decision = decide(mixed, UpdateFeatures((FeatureUpdate(name, level),), False), CONTEXT)
        assert decision.reply.error is ErrorCode.invalid_update_version
        assert (decision.reply.message or "").endswith(reason)
        assert decision.writes == ()
    alone = image(features={TRANSACTION_VERSION: 1}, registered=[broker(1)])
    update = UpdateFeatures((FeatureUpdate(TRANSACTION_VERSION, 2),), False)
    assert decide(alone, update, CONTEXT).reply == ChangeOutcome()


def test_a_broker_without_a_finalized_level_is_not_registered() -> None:
    older = broker(1, 0, levels={TRANSACTION_VERSION: (0, 1), GROUP_VERSION: (0, 1)})
    decision = decide(image(registered=[older, broker(2)]), REGISTRATION, CONTEXT)
    assert decision.reply.error is ErrorCode.unsupported_version
    assert "does not support finalized version 2 of transaction.version" in str(decision.reply)
    assert decision.writes == ()
    lowered = image(features={TRANSACTION_VERSION: 1}, registered=[older, broker(2)])
    assert decide(lowered, REGISTRATION, CONTEXT).reply == ChangeOutcome()


def test_the_clusters_config_is_that_of_the_first_broker() -> None:
    written, _ = registered(image(brokers=1), cluster_config={MIN_ISR: "2"})
    assert written.cluster_config == {MIN_ISR: "2"}
    stored = {MIN_ISR: "1"}
    written, notices = registered(image(cluster_config=stored), cluster_config={MIN_ISR: "2"})
    assert written.cluster_config == stored
    text = f"{MIN_ISR}=2 of broker 1 has no effect: it is 1 in this cluster"
    assert notices == (ControllerNotice(text, is_warning=True),)


def test_a_broker_that_is_alone_may_change_the_clusters_config() -> None:
    before = image(cluster_config={MIN_ISR: "1"}, brokers=1)
    written, notices = registered(before, cluster_config={MIN_ISR: "2"})
    assert written.cluster_config == {MIN_ISR: "2"}
    assert notices == ()


# --- deletions


def test_a_deletion_is_noted_with_each_broker_that_has_a_replica() -> None:
    before = image(TOPIC, deleted={"t": {NEW_ID: (2,)}})
    decision = decide(before, DeleteTopic(ID), CONTEXT)
    written = after(before, decision.writes)
    assert written.topics == {}
    assert written.deleted == {"t": {NEW_ID: (2,), ID: (1, 2)}}
    assert decide(before, DeleteTopic(UUID(int=7)), CONTEXT).reply.error is (
        ErrorCode.unknown_topic_id
    )


def test_a_deletion_stays_noted_until_every_broker_has_confirmed_it() -> None:
    before = image(deleted={"t": {ID: (1, 2), NEW_ID: (2,)}})
    decision = decide(before, DeletionsConfirmed(1, frozenset({ID, NEW_ID})), CONTEXT)
    half = after(before, decision.writes)
    assert half.deleted == {"t": {ID: (2,), NEW_ID: (2,)}}
    event = DeletionsConfirmed(2, frozenset({ID, NEW_ID}))
    decision = decide(image(deleted=half.deleted), event, CONTEXT)
    assert decision.writes == (Put(layout.deleted_path("t"), None),)


def test_a_note_of_an_earlier_version_goes_with_the_first_confirmation() -> None:
    """It names no brokers: there was one."""
    before = image(deleted={"t": {ID: (), NEW_ID: ()}})
    decision = decide(before, DeletionsConfirmed(1, frozenset({ID})), CONTEXT)
    assert after(before, decision.writes).deleted == {"t": {NEW_ID: ()}}
