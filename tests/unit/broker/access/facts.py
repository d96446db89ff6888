"""What each API needs, and the errors without: the facts of Kafka's `KafkaApis`, as a table."""

from __future__ import annotations

from typing import Any

from oncelog.protocol.api import ApiKey
from tests.unit.broker.access import facts_of_changes
from tests.unit.broker.access.asking import ID_OF, UNKNOWN_ID
from tests.unit.broker.access.fact import CLUSTER, GROUP, ID, TOPIC, Fact, every, part, whole


def _topics(api: ApiKey, topic: str, partition: str, name: str = "name") -> tuple[Any, ...]:
    """Two partitions of `a` and one of `b`."""
    index = {
        "OffsetForLeaderPartition": "partition",
    }.get(partition, "partition_index")
    return tuple(
        part(
            api,
            topic,
            **{
                name: each,
                "partitions": tuple(part(api, partition, **{index: n}) for n in indexes),
            },
        )
        for each, indexes in (("a", (0, 1)), ("b", (0,)))
    )


def _by_id(api: ApiKey, topic: str, partition: str) -> tuple[Any, ...]:
    """One partition of `a`, of `b`, and of an id that no topic has."""
    return tuple(
        part(api, topic, topic_id=each, partitions=(part(api, partition, partition_index=0),))
        for each in (ID_OF["a"], ID_OF["b"], UNKNOWN_ID)
    )


A, B = {"a/0": TOPIC, "a/1": TOPIC}, {"b/0": TOPIC}


def each_topic(api: ApiKey, need: str, topics: tuple[Any, ...], before: str = "") -> Fact:
    """Topics of which each has the need; `before` is what the request needs first."""
    allowed = [f"{need} TOPIC a", f"{need} TOPIC b"]
    return Fact(
        api,
        {"topics": topics},
        ", ".join(filter(None, (before, *allowed))),
        {allowed[0]: A, allowed[1]: B},
        A | B,
    )


def _records() -> list[Fact]:
    api, found = ApiKey.LIST_OFFSETS, []
    found.append(
        each_topic(api, "DESCRIBE", _topics(api, "ListOffsetsTopic", "ListOffsetsPartition"))
    )
    api = ApiKey.DELETE_RECORDS
    found.append(
        each_topic(api, "DELETE", _topics(api, "DeleteRecordsTopic", "DeleteRecordsPartition"))
    )
    api = ApiKey.OFFSET_FOR_LEADER_EPOCH
    topics = _topics(api, "OffsetForLeaderTopic", "OffsetForLeaderPartition", "topic")
    found += [
        each_topic(api, "DESCRIBE", topics),
        Fact(api, {"topics": topics}, "CLUSTER_ACTION CLUSTER", {}, A | B),
    ]
    api = ApiKey.DESCRIBE_PRODUCERS
    topics = tuple(
        part(api, "DescribeProducersTopic", name=name, partition_indexes=indexes)
        for name, indexes in (("a", (0, 1)), ("b", (0,)))
    )
    found.append(each_topic(api, "READ", topics))
    return found


def _metadata() -> list[Fact]:
    api, found = ApiKey.METADATA, []
    topics = tuple(part(api, "MetadataRequestTopic", name=name) for name in ("a", "b"))
    found.append(
        Fact(
            api,
            {"topics": topics, "allow_auto_topic_creation": False},
            "DESCRIBE TOPIC a, DESCRIBE TOPIC b",
            {"DESCRIBE TOPIC a": {"a": TOPIC}, "DESCRIBE TOPIC b": {"b": TOPIC}},
            every(TOPIC, "a", "b"),
            still_asked=True,  # The brokers are everybody's to see.
        )
    )
    for create in ("CREATE CLUSTER", "CREATE TOPIC new"):
        new = part(api, "MetadataRequestTopic", name="new")
        found.append(
            Fact(
                api,
                {"topics": (*topics, new)},
                f"DESCRIBE TOPIC a, DESCRIBE TOPIC b, DESCRIBE TOPIC new, {create}",
                {create: {"new": TOPIC}, "DESCRIBE TOPIC new": {"new": TOPIC}},
                every(TOPIC, "a", "b", "new"),
                still_asked=True,
            )
        )
    ids = tuple(
        part(api, "MetadataRequestTopic", topic_id=each)
        for each in (ID_OF["a"], ID_OF["b"], UNKNOWN_ID)
    )
    found.append(
        Fact(
            api,
            {"topics": ids},
            "DESCRIBE TOPIC a, DESCRIBE TOPIC b",
            {
                "DESCRIBE TOPIC a": {str(ID_OF["a"]): TOPIC},
                "DESCRIBE TOPIC b": {str(ID_OF["b"]): TOPIC},
            },
            every(TOPIC, str(ID_OF["a"]), str(ID_OF["b"])),
            still_asked=True,
            since=12,
        )
    )
    api = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    topics = tuple(part(api, "DescribeTopicPartitionsTopic", name=name) for name in ("a", "b"))
    found.append(
        Fact(
            api,
            {"topics": topics},
            "DESCRIBE TOPIC a, DESCRIBE TOPIC b",
            {},
            # The handler is told which topics to leave out, and the one here leaves out none.
            every(TOPIC, "a", "b"),
            still_asked=True,
        )
    )
    return found


def _groups() -> list[Fact]:
    found = [
        whole(ApiKey.JOIN_GROUP, "READ GROUP g", {"": GROUP}, group_id="g"),
        whole(ApiKey.HEARTBEAT, "READ GROUP g", {"": GROUP}, group_id="g"),
        whole(
            ApiKey.LEAVE_GROUP,
            "READ GROUP g",
            {"": GROUP},
            group_id="g",
            members=(part(ApiKey.LEAVE_GROUP, "MemberIdentity", member_id="m"),),
        ),
        whole(
            ApiKey.SYNC_GROUP,
            "READ GROUP g",
            {"": GROUP},
            group_id="g",
            protocol_type="consumer",
            protocol_name="range",
        ),
        Fact(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            {"group_id": "g", "subscribed_topic_names": ("a", "b", "new")},
            "READ GROUP g, DESCRIBE TOPIC a, DESCRIBE TOPIC b, DESCRIBE TOPIC new",
            {
                "READ GROUP g": {"": GROUP},
                "DESCRIBE TOPIC a": {"": TOPIC},
                "DESCRIBE TOPIC new": {"": TOPIC},
            },
            {"": GROUP},
        ),
    ]
    for api, field, need in (
        (ApiKey.DESCRIBE_GROUPS, "groups", "DESCRIBE"),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids", "DESCRIBE"),
        (ApiKey.DELETE_GROUPS, "groups_names", "DELETE"),
    ):
        found.append(
            Fact(
                api,
                {field: ("g", "h")},
                f"{need} GROUP g, {need} GROUP h",
                {f"{need} GROUP g": {"g": GROUP}, f"{need} GROUP h": {"h": GROUP}},
                every(GROUP, "g", "h"),
            )
        )
    found.append(Fact(ApiKey.LIST_GROUPS, {}, "DESCRIBE CLUSTER", {}, {}, still_asked=True))
    return found


def _coordinators() -> list[Fact]:
    api, found = ApiKey.FIND_COORDINATOR, []
    for kind, resource, code in ((0, "GROUP", GROUP), (1, "TRANSACTIONAL_ID", ID)):
        rights = [f"DESCRIBE {resource} x", f"DESCRIBE {resource} y"]
        found += [
            Fact(
                api,
                {"key_type": kind, "coordinator_keys": ("x", "y")},
                ", ".join(rights),
                {rights[0]: {"x": code}, rights[1]: {"y": code}},
                every(code, "x", "y"),
                since=4,
            ),
            Fact(
                api,
                {"key_type": kind, "coordinator_keys": ("x",)},
                rights[0],
                {},
                {"": code},
                since=kind,  # Version 0 has no types.
                until=3,
            ),
        ]
    share = {"key_type": 2, "coordinator_keys": ("s",)}
    found.append(Fact(api, share, "CLUSTER_ACTION CLUSTER", {}, {"s": CLUSTER}, since=6))
    return found


def _offsets() -> list[Fact]:
    found = []
    for api, first, code in (
        (ApiKey.OFFSET_COMMIT, "READ GROUP g", GROUP),
        (ApiKey.TXN_OFFSET_COMMIT, "WRITE TRANSACTIONAL_ID t, READ GROUP g", ID),
    ):
        names = f"{api.title}RequestTopic", f"{api.title}RequestPartition"
        ids_since = 10 if api is ApiKey.OFFSET_COMMIT else 6
        asked = {"group_id": "g"} | ({"transactional_id": "t"} if code == ID else {})
        rights = f"{first}, READ TOPIC a, READ TOPIC b"
        parts = ("a/0", "a/1", "b/0")
        without = {
            "READ GROUP g": every(GROUP, *parts),
            "READ TOPIC a": A,
            "READ TOPIC b": B,
        }
        if code == ID:
            without["WRITE TRANSACTIONAL_ID t"] = every(ID, *parts)
        found.append(
            Fact(
                api,
                asked | {"topics": _topics(api, *names)},
                rights,
                without,
                every(code, *parts),
                until=ids_since - 1,
            )
        )
        a, b, c = (f"{each}/0" for each in (ID_OF["a"], ID_OF["b"], UNKNOWN_ID))
        without = {"READ TOPIC a": {a: TOPIC}, "READ TOPIC b": {b: TOPIC}}
        found.append(
            Fact(
                api,
                asked | {"topics": _by_id(api, *names)},
                rights,
                without | {"READ GROUP g": every(GROUP, a, b, c)},
                every(code, a, b, c),
                since=ids_since,
            )
        )
    api = ApiKey.OFFSET_DELETE
    topics = _topics(api, "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")
    found.append(
        Fact(
            api,
            {"group_id": "g", "topics": topics},
            "DELETE GROUP g, READ TOPIC a, READ TOPIC b",
            {"DELETE GROUP g": {"": GROUP}, "READ TOPIC a": A, "READ TOPIC b": B},
            {"": GROUP},
        )
    )
    return found + _offset_fetch()


def _offset_fetch() -> list[Fact]:
    api = ApiKey.OFFSET_FETCH

    def group(name: str, *topics: Any) -> Any:
        wanted = tuple(
            part(api, "OffsetFetchRequestTopics", partition_indexes=(0,), **each) for each in topics
        )
        return part(api, "OffsetFetchRequestGroup", group_id=name, topics=wanted)

    named = group("g", {"name": "a"}, {"name": "b"})
    rights = "DESCRIBE GROUP g, DESCRIBE TOPIC a, DESCRIBE TOPIC b"
    parts = {"DESCRIBE TOPIC a": {"/a/0": TOPIC}, "DESCRIBE TOPIC b": {"/b/0": TOPIC}}
    denied: dict[str, int] = every(GROUP, "/a/0", "/b/0")
    found = [
        Fact(
            api,
            {"groups": (named,)},
            rights,
            parts | {"DESCRIBE GROUP g": denied},
            denied,
            until=1,
        ),
        Fact(
            api,
            {"groups": (named,)},
            rights,
            parts | {"DESCRIBE GROUP g": {"": GROUP}},
            {"": GROUP},
            since=2,
            until=7,
        ),
        Fact(
            api,
            {"groups": (named, group("h", {"name": "b"}))},
            f"{rights}, DESCRIBE GROUP h",
            {
                "DESCRIBE GROUP g": {"g": GROUP},
                "DESCRIBE TOPIC a": {"g/a/0": TOPIC},
                "DESCRIBE TOPIC b": {"g/b/0": TOPIC, "h/b/0": TOPIC},
            },
            every(GROUP, "g", "h"),
            since=8,
            until=9,
        ),
    ]
    ids = group("g", *({"topic_id": each} for each in (ID_OF["a"], ID_OF["b"], UNKNOWN_ID)))
    found.append(
        Fact(
            api,
            {"groups": (ids,)},
            rights,
            {
                "DESCRIBE TOPIC a": {f"g/{ID_OF['a']}/0": TOPIC},
                "DESCRIBE TOPIC b": {f"g/{ID_OF['b']}/0": TOPIC},
            },
            {"g": GROUP},
            since=10,
        )
    )
    return found


FACTS = [
    *_records(),
    *_metadata(),
    *_groups(),
    *_coordinators(),
    *_offsets(),
    *facts_of_changes.transactions(),
    *facts_of_changes.topic_changes(),
    *facts_of_changes.configs(),
    *facts_of_changes.cluster(),
]
