"""Events and replies as bytes: they come back equal, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.controller import events
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ChangeOutcome, ControllerEvent
from oncelog.controller.event_codec import (
    MalformedEvent,
    UnknownEvent,
    decode_event,
    decode_reply,
    encode_event,
    encode_reply,
)
from oncelog.controller.features import FeatureUpdate
from oncelog.controller.image import PartitionImage, TopicImage
from oncelog.controller.topics import TopicOutcome, TopicToCreate
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.cluster_limits import (
    CONTROLLER_EVENT_BYTES_MAX,
    CONTROLLER_EVENT_LISTS_COUNT_MAX,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import MESSAGE_BYTES_MAX
from oncelog.core.secret import Secret

ID = UUID(int=7)
T0 = TopicPartition("t", 0)
STATE = PartitionImage(-1, 5, (), (1, 2), (2,), 9, (), {1: (4, 17), 2: None}, (2,), (1,), (3,))
NEW = TopicToCreate("new", assignment={0: (1, 2)}, config={"a": "b", "c": None})
ISR = (events.IsrMember(1, 3), events.IsrMember(2, 4))
ACL = Acl(
    ResourceType.TOPIC,
    "t",
    PatternType.PREFIXED,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)

EVENTS: list[tuple[ControllerEvent[Any], Any]] = [
    (
        events.CreateTopics((NEW,), validate_only=True),
        (
            TopicOutcome("new", topic=TopicImage("new", ID, (STATE,), {"a": "b"})),
            TopicOutcome("a b", ErrorCode.invalid_topic_exception, "no name"),
        ),
    ),
    (events.CreatePartitions("t", 3, ((1, 2), (2, 1))), ChangeOutcome()),
    (events.CreatePartitions("t", 3), ChangeOutcome(ErrorCode.invalid_partitions, "no")),
    (
        events.AlterTopicConfigs("t", (ConfigChange("k", ConfigOperation.DELETE, None),)),
        ChangeOutcome(),
    ),
    (
        events.AlterGroupConfigs("g", (ConfigChange("k", ConfigOperation.SET, "ü"),), True),
        ChangeOutcome(),
    ),
    (events.DeleteTopic(ID), ChangeOutcome()),
    (events.UpdateFeatures((FeatureUpdate("f", 1, 2),)), ChangeOutcome()),
    (
        events.ElectLeaders((T0,), is_unclean=True),
        (events.ElectionOutcome(T0, ErrorCode.election_not_needed, "no"),),
    ),
    (events.ElectLeaders(None), ()),
    (events.ForgetBroker(3), ChangeOutcome()),
    (
        events.BrokerRegistered(
            1, 7, frozenset({"d", "e"}), False, {T0: (4, 17)}, {"f": 1}, {"k": "v"}, frozenset({T0})
        ),
        ChangeOutcome(),
    ),
    (events.BrokersChanged(), ChangeOutcome()),
    (events.BrokerShuttingDown(1, 7), events.ShutdownOutcome(remaining_count=2)),
    (
        events.AlterPartition(1, 3, (events.IsrChange(ID, 0, 5, 9, ISR),)),
        (events.IsrOutcome(state=STATE), events.IsrOutcome(ErrorCode.unknown_topic_id)),
    ),
    (events.DirectoryFailed(1, (T0,)), ChangeOutcome()),
    (events.ReplicasMadeAgain(1, (events.OffLineReplica(ID, 0, 5),)), ChangeOutcome()),
    (
        events.DeletionsConfirmed(
            1, frozenset({ID}), frozenset({events.LedCoordinator("__consumer_offsets", 4, 7)})
        ),
        ChangeOutcome(),
    ),
    (
        events.AlterReassignments(
            (events.Reassignment(T0, (1, 2)), events.Reassignment(T0, None)),
            allows_factor_change=False,
        ),
        (events.ReassignmentOutcome(T0, ErrorCode.no_reassignment_in_progress, "no"),),
    ),
    (
        events.AlterClientQuotas(
            (
                events.QuotaAlteration(
                    (("user", "a"), ("client-id", None)),
                    (events.QuotaChange("k", "0.5"), events.QuotaChange("l", None)),
                ),
            ),
            validate_only=True,
        ),
        (events.QuotaOutcome(ErrorCode.invalid_request, "no"), events.QuotaOutcome()),
    ),
    (
        events.AlterScramCredentials(
            (events.ScramDeletion("a", 1),),
            (events.ScramUpsertion("b", 2, 4096, Secret("cw=="), Secret("aw=="), Secret("dg==")),),
            Secret("fresh"),
        ),
        (events.ScramOutcome("a", ErrorCode.resource_not_found, "no"), events.ScramOutcome("b")),
    ),
    (
        events.CreateAcls((ACL, ACL._replace(name="u"))),
        (events.AclOutcome(), events.AclOutcome(ErrorCode.policy_violation, "no")),
    ),
    (
        events.DeleteAcls((ANY_ACL, AclFilter(*ACL))),
        (events.AclDeletion(ErrorCode.invalid_request, "no"), events.AclDeletion(acls=(ACL,))),
    ),
    (events.ReplicasRemoved(3, (events.RemovedReplica(ID, 0, 5),)), ChangeOutcome()),
]


def test_every_event_has_an_example_here() -> None:
    named = {getattr(events, name) for name in events.__all__}
    assert {type(event) for event, _ in EVENTS} == {
        kind for kind in named if issubclass(kind, ControllerEvent)
    }


@pytest.mark.parametrize(("event", "reply"), EVENTS, ids=lambda one: type(one).__name__)
def test_an_event_and_its_reply_come_back_equal(event: ControllerEvent[Any], reply: Any) -> None:
    assert decode_event(memoryview(encode_event(event))) == event
    assert decode_reply(event, encode_reply(event, reply)) == reply


FIRST: list[list[Any]] = json.loads(Path(__file__).with_name("first_events.json").read_text())
"""What the first version with several brokers sent: each event, and its reply."""


def without_order(value: Any) -> Any:
    """A value of JSON as one in which sets are equal in any order."""
    if isinstance(value, dict):
        return {key: without_order(part) for key, part in value.items()}
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return sorted(value)
    return [without_order(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("sent", "answered"), FIRST, ids=lambda one: str(one)[:20])
def test_the_first_version_sends_and_reads_the_same(sent: Any, answered: Any) -> None:
    """Brokers of both versions run while a cluster is upgraded."""
    event = decode_event(json.dumps(sent).encode())
    reply = decode_reply(event, json.dumps(answered).encode())
    assert without_order(json.loads(encode_event(event))) == without_order(sent)
    assert without_order(json.loads(encode_reply(event, reply))) == without_order(answered)


def test_a_reply_is_read_without_the_fields_of_a_newer_version() -> None:
    event = events.BrokerShuttingDown(1, 7)
    data = b'{"error":0,"remaining_count":2,"newer":[{"a":1}]}'
    assert decode_reply(event, data) == events.ShutdownOutcome(remaining_count=2)


def test_a_field_that_came_later_is_sent_where_it_says_something() -> None:
    event = events.AlterPartition(1, 3, ())
    reply = (events.IsrOutcome(state=replace(STATE, unknown_fields='{"newer":1}')),)
    assert decode_reply(event, encode_reply(event, reply)) == reply


@pytest.mark.parametrize(
    "data", [b'["NewerEvent",{}]', b'["ForgetBroker",{"broker_id":1,"newer":true}]']
)
def test_what_asks_for_more_than_this_version_can_do_is_named(data: bytes) -> None:
    with pytest.raises(UnknownEvent):
        decode_event(data)


def ways(value: Any) -> list[list[Any]]:
    """The ways (keys and indexes) to all parts of a value of JSON."""
    if not isinstance(value, dict | list):
        return []
    below = value.items() if isinstance(value, dict) else enumerate(value)
    return [way for key, part in below for way in ([key], *([key, *rest] for rest in ways(part)))]


@pytest.mark.parametrize(("event", "reply"), EVENTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("wrong", [0.5, {"a": 1}])
def test_a_part_of_another_type_is_one_error(
    event: ControllerEvent[Any], reply: Any, wrong: Any
) -> None:
    for way in ways(json.loads(encode_event(event))):
        value = part = json.loads(encode_event(event))
        for key in way[:-1]:
            part = part[key]
        part[way[-1]] = wrong
        with pytest.raises(MalformedEvent):
            decode_event(json.dumps(value).encode())
    with pytest.raises(MalformedEvent):
        decode_reply(event, json.dumps(wrong).encode())


def encoded(**changed: Any) -> bytes:
    return json.dumps(["ForgetBroker", {"broker_id": 1} | changed]).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b'["ForgetBroker"]',
        b'["ForgetBroker",{}]',
        b'["ForgetBroker",[1]]',
        b'["ForgetBroker",{"broker_id":1,"broker_id":1}]',
        b'["NoEvent",{}]',
        b'["IsrChange",{}]',
        b'[["ForgetBroker"],{"broker_id":1}]',
        encoded(other=1),
        encoded(broker_id=True),
        encoded(broker_id="1"),
        encoded(broker_id=None),
        encoded(broker_id=float("nan")),
        encoded(broker_id=10**30),
        b'["ForgetBroker",{"broker_id":' + b"9" * 5_000 + b"}]",
        b"[" * 200_000,
        b'["DeleteTopic",{"topic_id":"7"}]',
        b'["DeleteTopic",{"topic_id":"{00000000-0000-0000-0000-000000000007}"}]',
        b'["ElectLeaders",{"partitions":[{"topic":"t"}],"is_unclean":false}]',
    ],
)
def test_what_is_no_event_is_one_error(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode_event(data)


def test_a_key_that_is_there_twice_is_an_error() -> None:
    event = EVENTS[10][0]
    value = json.loads(encode_event(event))
    value[1]["levels"] *= 2
    with pytest.raises(MalformedEvent, match="twice"):
        decode_event(json.dumps(value).encode())


def test_an_event_of_the_largest_size_fits_into_a_request() -> None:
    assert CONTROLLER_EVENT_BYTES_MAX < MESSAGE_BYTES_MAX


def test_lists_are_counted_before_they_are_made() -> None:
    """In memory a list has 30 times the bytes that it has as JSON."""
    bomb = b"[" + b"[]," * CONTROLLER_EVENT_LISTS_COUNT_MAX + b"[]]"
    with pytest.raises(MalformedEvent, match="lists and objects"):
        decode_event(bomb)


def test_what_is_larger_than_the_limit_is_an_error() -> None:
    big = " " * CONTROLLER_EVENT_BYTES_MAX
    with pytest.raises(MalformedEvent, match="bytes, at most"):
        encode_event(events.AlterTopicConfigs(big, ()))
    with pytest.raises(MalformedEvent, match="bytes, at most"):
        decode_event(b"[]" + big.encode())


@given(st.binary(max_size=40) | st.text(alphabet='[]{}",:1eE.tn\\', max_size=30).map(str.encode))
def test_no_bytes_make_another_error(data: bytes) -> None:
    for decode in (decode_event, lambda one: decode_reply(events.ForgetBroker(1), one)):
        try:
            decode(data)
        except MalformedEvent:
            continue
        assert data.strip()
