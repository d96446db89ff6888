"""The requests, and by which rights each is asked: the table of needs, and what is not in it.

`tests.unit.broker.access.facts` has one request for each need, and expects its errors. What is
added here is about things that are there, which `tests.support.denial.asking` makes, and about what
is not there or named twice. Topic ids are those of `ID_OF`; each broker has its own instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.core.acl import AclOperation, AclPermission, PatternType, ResourceType
from oncelog.protocol import codec
from oncelog.protocol.api import PRIVATE, ApiKey
from oncelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.produce import ProduceRequest, ProduceTopic
from tests.unit.broker.access.asking import ID_OF, UNKNOWN_ID
from tests.unit.broker.access.fact import Fact, part, versions_of
from tests.unit.broker.access.facts import FACTS
from tests.unit.broker.access.facts_of_changes import CONFIG_APIS
from tests.unit.broker.support import batch

__all__ = ["GROUP", "LIVE_GROUP", "QUESTIONS", "SEEN", "TRANSACTION", "Question"]

SEEN = ("p", "q")
"""Topics with two partitions each, which are there all the time."""
GROUP, LIVE_GROUP, TRANSACTION = "k", "live", "w"
"""A group with offsets of both, one whose member has both, and an open transaction in both."""

Rights = frozenset[str]


class Question(NamedTuple):
    """One request, in a range of versions, asked by users with different rights."""

    api: ApiKey
    body: Any
    rights: tuple[Rights, ...]
    since: int = 0
    until: int = 99

    @property
    def versions(self) -> range:
        return versions_of(self.api, self.since, self.until)

    @property
    def title(self) -> str:
        most = max(self.rights, key=len)
        return f"{self.api.title} {self.since}-{self.until} {', '.join(sorted(most))}"


def _rights(*texts: str) -> tuple[Rights, ...]:
    return tuple(frozenset(filter(None, text.split(", "))) for text in texts)


def _question(
    api: ApiKey, asked: dict[str, Any], *rights: str, since: int = 0, until: int = 99
) -> Question:
    return Question(api, codec.request_class(api)(**asked), _rights(*rights), since, until)


def _of_fact(fact: Fact) -> Question:
    """Of who has nothing, all but one right, and all."""
    every = _rights(fact.rights)[0]
    asked = dict(fact.asked)
    if "timeout_ms" in {field.name for field in fields(codec.request_class(fact.api))}:
        asked["timeout_ms"] = 10_000
    rights = dict.fromkeys([frozenset[str](), *(every - {one} for one in sorted(every)), every])
    body = codec.request_class(fact.api)(**asked)
    return Question(fact.api, body, tuple(rights), fact.since, fact.until)


_ELSEWHERE = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_ACLS}
"""Asked below with what Kafka can read."""


def _acls() -> Iterator[Question]:
    acl = {
        "resource_type": int(ResourceType.TOPIC),
        "resource_name": "z",
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": "User:z",
        "host": "*",
        "operation": int(AclOperation.READ),
        "permission_type": int(AclPermission.ALLOW),
    }
    api = ApiKey.CREATE_ACLS
    asked = {"creations": (part(api, "AclCreation", **acl), part(api, "AclCreation", **acl))}
    yield _question(api, asked, "", "DESCRIBE CLUSTER", "ALTER CLUSTER")
    wanted = {
        "resource_type_filter": int(ResourceType.TOPIC),
        "resource_name_filter": "z",
        "pattern_type_filter": int(PatternType.LITERAL),
        "operation": int(AclOperation.ANY),
        "permission_type": int(AclPermission.ANY),
    }
    yield _question(ApiKey.DESCRIBE_ACLS, wanted, "", "READ TOPIC z", "DESCRIBE CLUSTER")
    api = ApiKey.DELETE_ACLS
    filters = (part(api, "DeleteAclsFilter", **wanted), part(api, "DeleteAclsFilter", **wanted))
    yield _question(api, {"filters": filters}, "", "DESCRIBE CLUSTER", "ALTER CLUSTER")


_SOME = ("", "DESCRIBE TOPIC p", "READ TOPIC q", "CREATE TOPIC q", "DELETE TOPIC p, READ TOPIC q")
_CLUSTER = ("DESCRIBE CLUSTER", "CREATE CLUSTER", "DESCRIBE CLUSTER, ALTER CLUSTER")


def _metadata() -> Iterator[Question]:
    api = ApiKey.METADATA
    yield _question(api, {"topics": ()}, *_SOME, until=0)
    every = {
        "topics": None,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    yield _question(api, every, *_SOME, *_CLUSTER, since=1)
    named = tuple(part(api, "MetadataRequestTopic", name=name) for name in (*SEEN, "absent"))
    asked = {
        "topics": named,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    yield _question(api, asked, *_SOME, "DESCRIBE TOPIC absent", since=4)
    api = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    yield _question(api, {}, *_SOME)
    named = tuple(
        part(api, "DescribeTopicPartitionsTopic", name=name) for name in ("absent", *SEEN)
    )
    yield _question(api, {"topics": named}, *_SOME, "DESCRIBE TOPIC absent")
    cursor = part(api, "Cursor", topic_name="p", partition_index=1)
    yield _question(api, {"topics": named, "cursor": cursor}, *_SOME)
    yield _question(api, {"response_partition_limit": 1}, *_SOME)
    asked = {"include_cluster_authorized_operations": True}
    yield _question(ApiKey.DESCRIBE_CLUSTER, asked, "", *_CLUSTER)


def _groups() -> Iterator[Question]:
    read = f"READ GROUP {GROUP}"
    yield _question(
        ApiKey.LIST_GROUPS, {}, "", read, f"DESCRIBE GROUP {LIVE_GROUP}", "DESCRIBE CLUSTER"
    )
    named = (GROUP, LIVE_GROUP, "absent")
    asked = {"groups": named, "include_authorized_operations": True}
    every = f"DESCRIBE GROUP {GROUP}, DELETE GROUP {LIVE_GROUP}, DESCRIBE GROUP absent"
    yield _question(ApiKey.DESCRIBE_GROUPS, asked, "", read, every, since=3)
    asked = {"group_ids": named, "include_authorized_operations": True}
    topics = "DESCRIBE TOPIC p, READ TOPIC q"
    live = f"DESCRIBE GROUP {LIVE_GROUP}"
    api = ApiKey.CONSUMER_GROUP_DESCRIBE
    yield _question(api, asked, "", topics, live, f"{live}, DESCRIBE TOPIC p", f"{live}, {topics}")
    api = ApiKey.OFFSET_FETCH
    group = f"DESCRIBE GROUP {GROUP}"
    everything = part(api, "OffsetFetchRequestGroup", group_id=GROUP, topics=None)
    rights: tuple[str, ...] = (
        "",
        topics,
        group,
        f"{group}, DESCRIBE TOPIC p",
        f"{group}, {topics}",
    )
    yield _question(api, {"groups": (everything,)}, *rights, since=2)
    other = part(api, "OffsetFetchRequestGroup", group_id="absent", topics=None)
    yield _question(api, {"groups": (other, everything)}, *rights, since=8)
    for kind in (2, 3, 9):
        asked = {"key_type": kind, "coordinator_keys": ("s",)}
        rights = ("", "DESCRIBE GROUP s", "CLUSTER_ACTION CLUSTER")
        yield _question(ApiKey.FIND_COORDINATOR, asked, *rights, since=1)


def _transactions() -> Iterator[Question]:
    topics = "DESCRIBE TOPIC p, WRITE TOPIC q"
    id_ = f"DESCRIBE TRANSACTIONAL_ID {TRANSACTION}"
    asked: dict[str, Any] = {"transactional_ids": (TRANSACTION, "absent")}
    rights: tuple[str, ...] = ("", topics, id_, f"{id_}, DESCRIBE TOPIC p", f"{id_}, {topics}")
    yield _question(ApiKey.DESCRIBE_TRANSACTIONS, asked, *rights)
    yield _question(ApiKey.LIST_TRANSACTIONS, {}, "", topics, id_)
    api = ApiKey.ADD_PARTITIONS_TO_TXN
    named = tuple(
        part(api, "AddPartitionsToTxnTopic", name=name, partitions=(0,))
        for name in ("p", "absent", "__consumer_offsets")
    )
    wanted = part(api, "AddPartitionsToTxnTransaction", transactional_id="t", topics=named)
    write = "WRITE TRANSACTIONAL_ID t"
    rights = (write, f"{write}, WRITE TOPIC p, WRITE TOPIC __consumer_offsets")
    yield _question(api, {"transactions": (wanted,)}, *rights, until=3)
    verified = part(
        api,
        "AddPartitionsToTxnTransaction",
        transactional_id=TRANSACTION,
        verify_only=True,
        topics=named[:1],
    )
    yield _question(api, {"transactions": (verified,)}, "", f"{write}, WRITE TOPIC p", since=4)


def _changes() -> Iterator[Question]:
    api = ApiKey.CREATE_TOPICS
    topics = tuple(
        part(api, "CreatableTopic", name=name, num_partitions=1, replication_factor=1)
        for name in ("x", "y")
    )
    create = "CREATE TOPIC x, CREATE TOPIC y"
    rights: tuple[str, ...] = ("", "CREATE TOPIC x", create, f"{create}, DESCRIBE_CONFIGS TOPIC x")
    for validates in (True, False):
        yield _question(api, {"topics": topics, "validate_only": validates}, *rights)
    api = ApiKey.DELETE_TOPICS
    asked = {"timeout_ms": 10_000}
    ids = (ID_OF["a"], UNKNOWN_ID, ID_OF["b"])
    by_id = tuple(part(api, "DeleteTopicState", topic_id=each) for each in ids)
    rights = ("", "DESCRIBE TOPIC a", "DESCRIBE TOPIC a, DELETE TOPIC b")
    yield _question(api, asked | {"topics": by_id}, *rights, since=6)
    named = tuple(part(api, "DeleteTopicState", name=name) for name in ("a", "absent", "b"))
    rights = ("", "DESCRIBE TOPIC a, DESCRIBE TOPIC absent", "DELETE TOPIC absent, DELETE TOPIC a")
    yield _question(api, asked | {"topics": named}, *rights)
    api = ApiKey.CREATE_PARTITIONS
    topics = tuple(
        part(api, "CreatePartitionsTopic", name=name, count=3, assignments=None)
        for name in ("a", "absent")
    )
    rights = ("", "ALTER TOPIC a", "ALTER TOPIC a, ALTER TOPIC absent")
    yield _question(api, asked | {"topics": topics}, *rights)
    yield _question(ApiKey.ELECT_LEADERS, asked | {"topic_partitions": None}, "", "ALTER CLUSTER")


def _offsets() -> Iterator[Question]:
    api = ApiKey.LIST_OFFSETS
    index = part(api, "ListOffsetsPartition", partition_index=0, timestamp=-1)
    missing = part(api, "ListOffsetsPartition", partition_index=9, timestamp=-1)
    topics = tuple(
        part(api, "ListOffsetsTopic", name=name, partitions=(index, missing))
        for name in ("a", "absent")
    )
    yield _question(api, {"topics": topics}, "", "READ TOPIC a", "DESCRIBE TOPIC absent")
    api = ApiKey.DELETE_RECORDS
    index = part(api, "DeleteRecordsPartition", partition_index=9, offset=0)
    topics = tuple(
        part(api, "DeleteRecordsTopic", name=name, partitions=(index,)) for name in ("a", "absent")
    )
    rights: tuple[str, ...] = ("", "DELETE TOPIC a", "DELETE TOPIC absent")
    yield _question(api, {"topics": topics, "timeout_ms": 10_000}, *rights)
    api = ApiKey.DESCRIBE_PRODUCERS
    topics = tuple(
        part(api, "DescribeProducersTopic", name=name, partition_indexes=(0, 9))
        for name in ("a", "absent", "no/name")
    )
    yield _question(api, {"topics": topics}, "", "READ TOPIC a", "READ TOPIC absent")


def _strange() -> Iterator[Question]:
    """What is named twice, is not there, or is of no type that there is."""
    api = ApiKey.METADATA
    twice = tuple(part(api, "MetadataRequestTopic", name=name) for name in ("a", "b", "a"))
    asked: dict[str, Any] = {"topics": twice, "allow_auto_topic_creation": False}
    yield _question(api, asked, "", "DESCRIBE TOPIC a", "DESCRIBE TOPIC b", since=4)
    names = (GROUP, "absent", GROUP)
    rights: tuple[str, ...] = ("", "READ GROUP absent", f"READ GROUP {GROUP}")
    yield _question(ApiKey.DESCRIBE_GROUPS, {"groups": names}, *rights)
    yield _question(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": names}, *rights)
    yield _question(ApiKey.DELETE_GROUPS, {"groups_names": ("g9", "g9", "g8")}, *rights)
    asked = {"key_type": 0, "coordinator_keys": names}
    yield _question(ApiKey.FIND_COORDINATOR, asked, *rights, since=4)
    api = ApiKey.OFFSET_FETCH
    groups = tuple(
        part(api, "OffsetFetchRequestGroup", group_id=name, topics=None) for name in names
    )
    yield _question(api, {"groups": groups}, *rights, since=8)
    asked = {"transactional_ids": (TRANSACTION, "absent", TRANSACTION)}
    rights = ("", f"DESCRIBE TRANSACTIONAL_ID {TRANSACTION}")
    yield _question(ApiKey.DESCRIBE_TRANSACTIONS, asked, *rights)
    for api, name, need in CONFIG_APIS:
        resources = tuple(
            part(api, name, resource_type=kind, resource_name=named)
            for kind, named in ((2, "a"), (2, "absent"), (2, "no/name"), (4, "77"))
        )
        both = f"{need} TOPIC a, {need} TOPIC absent"
        yield _question(api, {"resources": resources}, "", both, f"{need} CLUSTER")
        unknown = (part(api, name, resource_type=99, resource_name="x"),)
        yield _question(api, {"resources": unknown}, "", f"{need} CLUSTER")
    api = ApiKey.OFFSET_COMMIT
    index = (part(api, "OffsetCommitRequestPartition"),)
    topics = tuple(
        part(api, "OffsetCommitRequestTopic", name=name, partitions=index)
        for name in ("absent", "a")
    )
    read = "READ GROUP g7"
    rights = ("", read, f"{read}, READ TOPIC a", f"{read}, READ TOPIC absent")
    yield _question(api, {"group_id": "g7", "topics": topics}, *rights, until=9)
    asked = {"transactional_id": "t7", "transaction_timeout_ms": 0}
    yield _question(ApiKey.INIT_PRODUCER_ID, asked, "", "DESCRIBE TRANSACTIONAL_ID t7")
    regex = {"subscribed_topic_regex": "a.*", "rebalance_timeout_ms": 5_000, "topic_partitions": ()}
    asked = {"group_id": "g6", "member_id": str(UUID(int=6)), **regex}
    yield _question(ApiKey.CONSUMER_GROUP_HEARTBEAT, asked, "", "DESCRIBE GROUP g6", since=1)


def _records() -> Iterator[Question]:
    rights = _rights("", "WRITE TOPIC b", "WRITE TOPIC a, WRITE TOPIC b, WRITE TOPIC absent")
    plain, transactional = (
        bytes(batch()),
        bytes(batch(producer_id=1, epoch=0, sequence=0, transactional=True)),
    )

    def produce(
        records: bytes, names: tuple[str, ...], id_: str | None = None, acks: int = -1
    ) -> ProduceRequest:
        topics: Any = [ProduceTopic(name, None, [(0, records)]) for name in names]  # type: ignore[list-item]
        return ProduceRequest(id_, acks, 5_000, topics)

    api = ApiKey.PRODUCE
    yield Question(api, produce(plain, ("a", "b", "absent")), rights, since=3, until=12)
    yield Question(api, produce(plain, ("a", "b"), acks=0), rights[:2], since=3, until=12)
    by_id: Any = [
        ProduceTopic(None, each, [(0, plain)])  # type: ignore[list-item]
        for each in (ID_OF["a"], UNKNOWN_ID, ID_OF["b"])
    ]
    yield Question(api, ProduceRequest(None, -1, 5_000, by_id), rights, since=13)
    write = "WRITE TRANSACTIONAL_ID t2"
    more = _rights("WRITE TOPIC a", write, f"{write}, WRITE TOPIC a")
    for id_ in ("t2", None):
        yield Question(api, produce(transactional, ("a", "b"), id_), more, since=3, until=12)
    yield Question(api, produce(plain, ("a", "b"), "t2"), more, since=3, until=12)
    yield from _fetches()


def _fetches() -> Iterator[Question]:
    rights = _rights("", "READ TOPIC b", "READ TOPIC a, READ TOPIC b, READ TOPIC absent")

    def fetch(topics: list[FetchTopic], **more: Any) -> FetchRequest:
        return FetchRequest(0, 0, 2**20, topics=topics, **more)

    wanted = [FetchPartition(0, 0, 2**20)]
    named = [FetchTopic(name, None, wanted) for name in ("a", "b", "absent")]
    api = ApiKey.FETCH
    yield Question(api, fetch(named), rights, until=12)
    yield Question(api, fetch(named, session_epoch=0), rights, since=7, until=12)
    ids = [FetchTopic(None, each, wanted) for each in (ID_OF["a"], UNKNOWN_ID, ID_OF["b"])]
    yield Question(api, fetch(ids), rights, since=13)
    yield Question(api, fetch(ids, session_epoch=0), rights, since=13)
    follower = _rights("", "READ TOPIC a, READ TOPIC b")
    yield Question(api, fetch(ids, replica_id=7, replica_epoch=1), follower, since=15)


QUESTIONS = [
    *(
        _of_fact(fact)
        for fact in FACTS
        if fact.api not in PRIVATE | _ELSEWHERE and "sender_id" not in fact.asked
    ),
    *_acls(),
    *_metadata(),
    *_groups(),
    *_transactions(),
    *_changes(),
    *_offsets(),
    *_strange(),
    *_records(),
]
