"""The facts about transactions, and about what changes topics, configs and the cluster."""

from __future__ import annotations

from typing import Any

from oncelog.protocol.api import ApiKey
from tests.unit.broker.access.asking import ID_OF
from tests.unit.broker.access.fact import (
    CLUSTER,
    GROUP,
    ID,
    NOT_ATTEMPTED,
    TOPIC,
    UNKNOWN_TOPIC,
    Fact,
    every,
    part,
    whole,
)


def transactions() -> list[Fact]:
    txn = "WRITE TRANSACTIONAL_ID t"
    found = [
        whole(ApiKey.END_TXN, txn, {"": ID}, transactional_id="t"),
        whole(ApiKey.INIT_PRODUCER_ID, txn, {"": ID}, transactional_id="t"),
        Fact(ApiKey.INIT_PRODUCER_ID, {}, "IDEMPOTENT_WRITE CLUSTER", {}, {"": CLUSTER}),
        Fact(ApiKey.INIT_PRODUCER_ID, {}, "WRITE TOPIC any", {}, {"": CLUSTER}),
        Fact(
            ApiKey.ADD_OFFSETS_TO_TXN,
            {"transactional_id": "t", "group_id": "g"},
            f"{txn}, READ GROUP g",
            {txn: {"": ID}, "READ GROUP g": {"": GROUP}},
            {"": ID},
        ),
        Fact(
            ApiKey.DESCRIBE_TRANSACTIONS,
            {"transactional_ids": ("t", "u")},
            "DESCRIBE TRANSACTIONAL_ID t, DESCRIBE TRANSACTIONAL_ID u",
            {"DESCRIBE TRANSACTIONAL_ID u": {"u": ID}},
            every(ID, "t", "u"),
        ),
        Fact(ApiKey.LIST_TRANSACTIONS, {}, "DESCRIBE TRANSACTIONAL_ID t", {}, {}, still_asked=True),
    ]
    return [*found, *_partitions_and_markers(txn)]


def _partitions_and_markers(txn: str) -> list[Fact]:
    api = ApiKey.ADD_PARTITIONS_TO_TXN

    def adding(*topics: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
        named = tuple(
            part(api, "AddPartitionsToTxnTopic", name=name, partitions=indexes)
            for name, indexes in topics
        )
        wanted = part(api, "AddPartitionsToTxnTransaction", transactional_id="t", topics=named)
        return {"transactions": (wanted,)}

    both = adding(("a", (0, 1)), ("b", (0, 7)))
    found = [
        Fact(
            api,
            both,
            f"{txn}, WRITE TOPIC a, WRITE TOPIC b",
            {
                txn: every(ID, "/a/0", "/a/1", "/b/0", "/b/7"),
                "WRITE TOPIC a": every(TOPIC, "/a/0", "/a/1")
                | {"/b/0": NOT_ATTEMPTED, "/b/7": UNKNOWN_TOPIC},
                "WRITE TOPIC b": every(TOPIC, "/b/0", "/b/7")
                | every(NOT_ATTEMPTED, "/a/0", "/a/1"),
            },
            every(ID, "/a/0", "/a/1", "/b/0", "/b/7"),
            until=3,
        ),
        Fact(
            api,
            both,
            "CLUSTER_ACTION CLUSTER",
            {},
            {"": CLUSTER},
            since=4,
        ),
    ]
    api = ApiKey.WRITE_TXN_MARKERS
    topic = part(api, "WritableTxnMarkerTopic", name="a", partition_indexes=(0,))
    marker = part(api, "WritableTxnMarker", producer_id=5, topics=(topic,))
    for need in ("ALTER CLUSTER", "CLUSTER_ACTION CLUSTER"):
        found.append(Fact(api, {"markers": (marker,)}, need, {}, {"5/a/0": CLUSTER}))
    sent = {"markers": (marker,), "sender_id": 1}
    found.append(Fact(api, sent, "CLUSTER_ACTION CLUSTER", {}, {"5/a/0": CLUSTER}))
    return found


def topic_changes() -> list[Fact]:
    api = ApiKey.CREATE_TOPICS
    topics = tuple(part(api, "CreatableTopic", name=name) for name in ("x", "y", "twice", "twice"))
    shown = "DESCRIBE_CONFIGS TOPIC x, DESCRIBE_CONFIGS TOPIC y"
    found = [
        Fact(
            api,
            {"topics": topics},
            f"CREATE TOPIC x, CREATE TOPIC y, {shown}",
            {"CREATE TOPIC x": {"x": TOPIC}, "CREATE TOPIC y": {"y": TOPIC}},
            every(TOPIC, "x", "y"),
            still_asked=True,  # It refuses the name that stands twice.
        ),
        Fact(api, {"topics": topics[:2]}, f"CREATE CLUSTER, {shown}", {}, every(TOPIC, "x", "y")),
    ]
    api = ApiKey.DELETE_TOPICS
    named = tuple(part(api, "DeleteTopicState", name=name) for name in ("a", "b"))
    found += [
        Fact(
            api,
            {"topics": named},
            "DELETE TOPIC a, DELETE TOPIC b",
            {"DELETE TOPIC a": {"a": TOPIC}, "DELETE TOPIC b": {"b": TOPIC}},
            every(TOPIC, "a", "b"),
        ),
        Fact(api, {"topics": named}, "DELETE CLUSTER", {}, every(TOPIC, "a", "b")),
    ]
    ids = tuple(part(api, "DeleteTopicState", topic_id=ID_OF[name]) for name in ("a", "b"))
    by_id = {name: str(ID_OF[name]) for name in ("a", "b")}
    found.append(
        Fact(
            api,
            {"topics": ids},
            "DELETE TOPIC a, DELETE TOPIC b",
            {"DELETE TOPIC a": {by_id["a"]: TOPIC}, "DELETE TOPIC b": {by_id["b"]: TOPIC}},
            every(TOPIC, *by_id.values()),
            since=6,
        )
    )
    api = ApiKey.CREATE_PARTITIONS
    topics = tuple(part(api, "CreatePartitionsTopic", name=name, count=3) for name in ("a", "b"))
    found.append(
        Fact(
            api,
            {"topics": topics},
            "ALTER TOPIC a, ALTER TOPIC b",
            {"ALTER TOPIC a": {"a": TOPIC}, "ALTER TOPIC b": {"b": TOPIC}},
            every(TOPIC, "a", "b"),
        )
    )
    return found


CONFIG_APIS = (
    (ApiKey.DESCRIBE_CONFIGS, "DescribeConfigsResource", "DESCRIBE_CONFIGS"),
    (ApiKey.ALTER_CONFIGS, "AlterConfigsResource", "ALTER_CONFIGS"),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigsResource", "ALTER_CONFIGS"),
)
"""Each with the name of its resources, and what it needs on them."""


def configs() -> list[Fact]:
    found = []
    for api, name, need in CONFIG_APIS:
        resources = tuple(
            part(api, name, resource_type=kind, resource_name=named)
            for kind, named in ((2, "a"), (32, "g"), (4, "1"), (8, "2"), (16, "m"))
        )
        # AlterConfigs knows no loggers (8): its handler says so to whoever asks.
        has_loggers = api is not ApiKey.ALTER_CONFIGS
        brokers = every(CLUSTER, "1", *(["2"] if has_loggers else []), "m")
        found.append(
            Fact(
                api,
                {"resources": resources},
                f"{need} TOPIC a, {need} GROUP g, {need} CLUSTER",
                {
                    f"{need} TOPIC a": {"a": TOPIC},
                    f"{need} GROUP g": {"g": GROUP},
                    f"{need} CLUSTER": brokers,
                },
                {"a": TOPIC, "g": GROUP, **brokers},
                still_asked=not has_loggers,
            )
        )
    return found


def cluster() -> list[Fact]:
    alter, describe, configs = "ALTER CLUSTER", "DESCRIBE CLUSTER", "DESCRIBE_CONFIGS CLUSTER"
    one = {"": CLUSTER}
    found = [
        whole(ApiKey.DESCRIBE_ACLS, describe, one),
        whole(ApiKey.LIST_PARTITION_REASSIGNMENTS, describe, one),
        whole(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe, one),
        whole(ApiKey.DESCRIBE_CLIENT_QUOTAS, configs, one),
        whole(ApiKey.LIST_CONFIG_RESOURCES, configs, one),
        whole(ApiKey.UPDATE_FEATURES, alter, one),
        whole(ApiKey.UNREGISTER_BROKER, alter, one),
        whole(ApiKey.CONTROLLER_EVENT, "CLUSTER_ACTION CLUSTER", one),
        Fact(ApiKey.APPLIED_REVISION, {}, "CLUSTER_ACTION CLUSTER", {}, {}),  # It tells -1.
        Fact(ApiKey.DESCRIBE_LOG_DIRS, {}, describe, {}, {}, until=2),
        Fact(ApiKey.DESCRIBE_LOG_DIRS, {}, describe, {}, one, since=3),
        Fact(ApiKey.DESCRIBE_CLUSTER, {}, "", {}, {}, still_asked=True),
    ]
    api = ApiKey.ALTER_CLIENT_QUOTAS
    entries = (part(api, "QuotaEntryData"),)
    found.append(whole(api, "ALTER_CONFIGS CLUSTER", one, entries=entries))
    api = ApiKey.CREATE_ACLS
    found.append(whole(api, alter, one, creations=(part(api, "AclCreation"),)))
    api = ApiKey.DELETE_ACLS
    found.append(whole(api, alter, one, filters=(part(api, "DeleteAclsFilter"),)))
    api = ApiKey.ALTER_REPLICA_LOG_DIRS
    topic = part(api, "AlterReplicaLogDirTopic", name="a", partitions=(0,))
    moved = (part(api, "AlterReplicaLogDir", path="/x", topics=(topic,)),)
    found.append(whole(api, alter, {"a/0": CLUSTER}, dirs=moved))
    api = ApiKey.ELECT_LEADERS
    named = (part(api, "TopicPartitions", topic="a", partitions=(0,)),)
    asked = {"topic_partitions": named}
    found += [
        Fact(api, asked, alter, {}, {"a/0": CLUSTER}, until=0),
        Fact(api, asked, alter, {}, every(CLUSTER, "", "a/0"), since=1),
    ]
    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    topic = part(
        api, "ReassignableTopic", name="a", partitions=(part(api, "ReassignablePartition"),)
    )
    found.append(whole(api, alter, every(CLUSTER, "", "a/0"), topics=(topic,)))
    api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    deletions = tuple(part(api, "ScramCredentialDeletion", name=name) for name in ("u", "v"))
    found.append(whole(api, alter, every(CLUSTER, "u", "v"), deletions=deletions))
    return found
