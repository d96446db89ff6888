"""Compares an answer with what its client had a right to: the simulation's own table of needs.

`judge` gets the request, the response, and `may`, which tells whether the client may do something;
None means that this is not known. Whatever a request needs has to be refused where it is not there,
and must not be where it is. Requests that name no resource of their own are left out.

Source: the operations that KafkaApis.scala asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from oncelog.core.acl import CLUSTER_NAME, AclOperation, ResourceType
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey

__all__ = ["JUDGED", "REFUSALS", "May", "errors_of", "judge"]

May: TypeAlias = Callable[[AclOperation, ResourceType, str], bool | None]
NameOf: TypeAlias = Callable[[UUID], str | None]

_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
_REFUSAL: Final = {
    _TOPIC: ErrorCode.topic_authorization_failed,
    _GROUP: ErrorCode.group_authorization_failed,
    _ID: ErrorCode.transactional_id_authorization_failed,
}
REFUSALS: Final = frozenset({*_REFUSAL.values(), ErrorCode.cluster_authorization_failed})
"""What a client is told that may not."""


class _Need(NamedTuple):
    operation: AclOperation
    kind: ResourceType
    field: str


_OF_ID: Final = _Need(_WRITE, _ID, "transactional_id")
_OF_GROUP: Final = _Need(_READ, _GROUP, "group_id")
_WHOLE: Final[Mapping[ApiKey, tuple[_Need, ...]]] = {
    ApiKey.PRODUCE: (_OF_ID,),
    ApiKey.INIT_PRODUCER_ID: (_OF_ID,),
    ApiKey.ADD_OFFSETS_TO_TXN: (_OF_ID, _OF_GROUP),
    ApiKey.TXN_OFFSET_COMMIT: (_OF_ID, _OF_GROUP),
    ApiKey.END_TXN: (_OF_ID,),
    ApiKey.OFFSET_COMMIT: (_OF_GROUP,),
    ApiKey.JOIN_GROUP: (_OF_GROUP,),
    ApiKey.SYNC_GROUP: (_OF_GROUP,),
    ApiKey.HEARTBEAT: (_OF_GROUP,),
    ApiKey.LEAVE_GROUP: (_OF_GROUP,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_OF_GROUP,),
}
"""What a request needs as a whole, in the order in which it is asked for."""
_OF_TOPICS: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.PRODUCE: _WRITE,
    ApiKey.FETCH: _READ,
    ApiKey.LIST_OFFSETS: _DESCRIBE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _DESCRIBE,
    ApiKey.METADATA: _DESCRIBE,
    ApiKey.TXN_OFFSET_COMMIT: _READ,
    ApiKey.OFFSET_COMMIT: _READ,
}
"""What each topic of a response needs."""
JUDGED: Final = frozenset(
    {*_WHOLE, *_OF_TOPICS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS}
    | {ApiKey.ADD_PARTITIONS_TO_TXN}
)


def judge(
    key: ApiKey, body: Any, response: Any, may: May, name_of: NameOf
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an answer: in what way, and the particulars."""
    refused = False
    for need in _WHOLE.get(key, ()):
        name = getattr(body, need.field)
        if name is None:
            continue  # It names no id: a producer without transactions.
        verdict = may(need.operation, need.kind, name)
        if verdict is None:
            return
        error = _REFUSAL[need.kind]
        told = set(errors_of(response))
        if not verdict:
            yield from _compare(key, name, verdict, told <= {error}, told)
            refused = True
            break
        yield from _compare(key, name, verdict, error in told, told)
    if refused:
        return
    if key in _OF_TOPICS:
        yield from _judge_topics(key, response, may, name_of)
    elif key is ApiKey.FIND_COORDINATOR:
        kind = _ID if body.key_type else _GROUP
        for asked, found in zip(body.coordinator_keys, response.coordinators, strict=True):
            verdict = may(_DESCRIBE, kind, asked)
            is_refused = found.error_code is _REFUSAL[kind]
            yield from _compare(key, asked, verdict, is_refused, {found.error_code})
    elif key is ApiKey.OFFSET_FETCH:
        for asked, group in zip(body.groups, response.groups, strict=True):
            yield from _judge_offsets(asked, group, may, name_of)
    elif key is ApiKey.ADD_PARTITIONS_TO_TXN:
        yield from _judge_partitions(body, response, may)
    elif key is ApiKey.LIST_GROUPS:
        shows_all = may(_DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME) is not False
        for group in () if shows_all else response.groups:
            if may(_DESCRIBE, _GROUP, group.group_id) is False:
                yield _SERVED, f"{key.name} names group {group.group_id}"


_SERVED: Final = "what a client has no right to is served"
_REFUSED: Final = "what a client has a right to is refused"


def _compare(
    key: ApiKey, name: str, verdict: bool | None, is_refused: bool, told: Iterable[ErrorCode]
) -> Iterator[tuple[str, str]]:
    if verdict is not None and verdict is is_refused:
        codes = ", ".join(sorted(code.name for code in told))
        yield (_REFUSED if verdict else _SERVED), f"{key.name} of {name} is answered {codes}"


def _judge_topics(
    key: ApiKey, response: Any, may: May, name_of: NameOf
) -> Iterator[tuple[str, str]]:
    operation, error = _OF_TOPICS[key], _REFUSAL[_TOPIC]
    for topic in response.topics:
        name = _name(topic, name_of)
        if name is None:
            continue  # It is named by an id that no topic has, or that is not shown.
        told = set(errors_of(topic))
        if not told:
            continue
        verdict = may(operation, _TOPIC, name)
        is_refused = told == {error} if verdict is False else error in told
        yield from _compare(key, name, verdict, is_refused, told)


def _judge_offsets(asked: Any, group: Any, may: May, name_of: NameOf) -> Iterator[tuple[str, str]]:
    key, verdict = ApiKey.OFFSET_FETCH, may(_DESCRIBE, _GROUP, asked.group_id)
    told = set(errors_of(group))
    yield from _compare(key, asked.group_id, verdict, _REFUSAL[_GROUP] in told, told)
    if verdict:
        for topic in group.topics:
            name, told = _name(topic, name_of), set(errors_of(topic))
            if name is not None and told:
                is_refused = _REFUSAL[_TOPIC] in told
                yield from _compare(key, name, may(_DESCRIBE, _TOPIC, name), is_refused, told)


def _judge_partitions(body: Any, response: Any, may: May) -> Iterator[tuple[str, str]]:
    """Of clients, whose versions name one transaction. A refused topic stops the others."""
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    (asked,) = body.transactions
    verdict = may(_WRITE, _ID, asked.transactional_id)
    if verdict is None:
        return
    told = set(errors_of(response))
    is_refused = _REFUSAL[_ID] in told
    yield from _compare(key, asked.transactional_id, verdict, is_refused, told)
    if not verdict:
        return
    names = [topic.name for topic in asked.topics]
    rights = {name: may(_WRITE, _TOPIC, name) for name in names}
    for result in response.results_by_transaction:
        for topic in result.topic_results:
            told = set(errors_of(topic))
            is_refused = _REFUSAL[_TOPIC] in told
            yield from _compare(key, topic.name, rights.get(topic.name), is_refused, told)


def _name(topic: Any, name_of: NameOf) -> str | None:
    name: str | None = topic.topic if hasattr(topic, "topic") else topic.name
    if name is None and topic.topic_id is not None:
        return name_of(topic.topic_id)
    return name


def errors_of(value: Any) -> Iterator[ErrorCode]:
    """Yield all error codes of a response: where its parts have some, those and its own if any."""
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        for each in value:
            yield from errors_of(each)
        return
    for name in getattr(value, "__dataclass_fields__", getattr(value, "_fields", ())):
        part = getattr(value, name)
        if name in ("error", "error_code", "partition_error_code"):
            yield ErrorCode(part)
        elif isinstance(part, tuple | list):
            yield from errors_of(part)
