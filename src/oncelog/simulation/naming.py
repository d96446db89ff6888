"""Looks for a broker that refuses what it names, or what another one names it for.

A request is answered with NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER or an unknown topic while
FindCoordinator or Metadata of the same broker names it at that moment. Each case is one WARNING,
which the history keeps and `checkers/named.py` finds. The handlers are wrapped where the dispatcher
finds them, so the product has no hook.

Few clients ask in the milliseconds in which a step of the metadata is applied. `warn_of_unserved`
therefore looks whether those who asked then would be refused.

A broker that another one names, in metadata that it has not read, is to read it before it refuses,
as far as the store answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import cache, partial
from types import CoroutineType, SimpleNamespace
from typing import Any, Final
from uuid import UUID

from oncelog.broker.apis import find_coordinator
from oncelog.broker.apis.context import Context
from oncelog.broker.net.dispatch import Find
from oncelog.broker.net.request import Api, Request
from oncelog.broker.partitions.manager import PartitionManager
from oncelog.controller.image import MetadataImage
from oncelog.core.cluster_limits import CATCH_UP_MS_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import parse_fetch_request
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.produce import parse_produce_request
from oncelog.simulation.checkers.named import REFUSED

__all__ = ["looked_at", "warn_of_unserved", "watched"]

log = logging.getLogger(__name__)

GROUP, TRANSACTION = 0, 1
_KINDS: Final = {
    ApiKey.JOIN_GROUP: GROUP,
    ApiKey.SYNC_GROUP: GROUP,
    ApiKey.HEARTBEAT: GROUP,
    ApiKey.LEAVE_GROUP: GROUP,
    ApiKey.OFFSET_COMMIT: GROUP,
    ApiKey.TXN_OFFSET_COMMIT: GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUP,
    ApiKey.INIT_PRODUCER_ID: TRANSACTION,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTION,
    ApiKey.END_TXN: TRANSACTION,
}
"""The requests to coordinators that name one id, and the kind of it in FindCoordinator."""
_UNSERVED: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
)


def warn_of_unserved(image: MetadataImage, partitions: PartitionManager, broker_id: int) -> None:
    """Log the first partition that this broker names itself as the leader of, and does not lead."""
    for topic in image.topics.values():
        for (name, index), held in zip(topic.topic_partitions(), topic.partitions, strict=True):
            partition = partitions.get(name, index)
            is_led = partition is not None and partition.state.is_leader
            if held.leader == broker_id and not is_led:
                log.warning("%s%s-%d is named and not led", REFUSED, name, index)
                return


def watched(find: Find, others: Callable[[], Iterable[MetadataImage]] = tuple) -> Find:
    """Return what finds the APIs of a broker, with handlers that look at the answers.

    `others` returns the metadata from which the other brokers answer.
    """

    @cache
    def find_watched(key: ApiKey) -> Api | None:
        api = find(key)
        if api is None:
            return None
        if key in _KINDS:
            return Api(key, partial(_ask_coordinator, api, _KINDS[key], others), api.reads_bytes)
        if key in (ApiKey.PRODUCE, ApiKey.FETCH):
            return Api(key, partial(_ask_leader, api), api.reads_bytes)
        return api

    return find_watched


def _ask_coordinator(
    api: Api,
    kind: int,
    others: Callable[[], Iterable[MetadataImage]],
    context: Context,
    request: Request[Any],
) -> object:
    body = request.body
    id_ = body.group_id if kind == GROUP else body.transactional_id
    asked_in = _epoch(context, kind, id_)
    asked_ms, feed = context.clock.monotonic_ms(), context.feed
    names_it = partial(_is_coordinator, broker_id=context.broker_id, kind=kind, id_=id_)

    def named_in() -> int:
        return max((image.revision for image in others() if names_it(image)), default=-1)

    named_before = named_in()

    def look(answer: object) -> None:
        if not _has(answer, ErrorCode.not_coordinator):
            return
        # Its own clock may be a little slower than that of its timers.
        has_waited = context.clock.monotonic_ms() - asked_ms >= CATCH_UP_MS_MAX * 0.9
        is_behind = feed.known.stored.revision < min(named_before, named_in())
        if is_behind and not has_waited and feed.health.failure is None:
            log.warning("%s%s of %s is refused unread", REFUSED, api.key.name, id_)
        if _epoch(context, kind, id_) != asked_in:
            return  # A role that has ended since answers what waited, also where another began.
        if id_ and _names(context, kind, id_):
            log.warning("%s%s of %s is answered with NOT_COORDINATOR", REFUSED, api.key.name, id_)

    return looked_at(api.handle(context, request), look)


def _ask_leader(api: Api, context: Context, request: Request[memoryview]) -> object:
    """Only what is answered at once is looked at; later answers come from the log."""
    body, errors = request.body, request.meter.errors
    before = [errors[error] for error in _UNSERVED]
    answer: object = api.handle(context, request)
    if [errors[error] for error in _UNSERVED] != before:
        asked = _partitions(api.key, request.version, body)
        led = [(name, index) for name, index in asked if _leads(context, name, index)]
        # Which of several was refused is not looked for: all of them have to be named.
        if led and len(led) == len(asked) and not _is_of_follower(api.key, request.version, body):
            log.warning("%s%s of %s is refused", REFUSED, api.key.name, led[0])
    return answer


def looked_at(value: object, look: Callable[[object], None]) -> object:
    """Call `look` with the response, at once or when there is one."""
    if type(value) is Pending:
        convert = value.convert
        value.convert = lambda result: looked_at(convert(result), look)
        return value
    if type(value) is CoroutineType:
        return _looked_at_later(value, look)
    look(value)
    return value


async def _looked_at_later(
    value: Coroutine[object, object, object], look: Callable[[object], None]
) -> object:
    return looked_at(await value, look)


def _is_of_follower(key: ApiKey, version: int, body: memoryview) -> bool:
    """Whether it is a follower's fetch: a leader refuses the broker of another life (KIP-903)."""
    return key is ApiKey.FETCH and parse_fetch_request(body, version).replica_id >= 0


def _epoch(context: Context, kind: int, id_: str | None) -> int | None:
    """Return the leader epoch of the partition to which this broker's coordinator writes."""
    topic = context.image.topic(find_coordinator.TOPIC_OF_TYPE[kind])
    if topic is None or not id_:
        return None
    index = coordinator_partition(id_, len(topic.partitions))
    partition = context.partitions.get(topic.name, index)
    return None if partition is None else partition.state.leader_epoch


def _is_coordinator(image: MetadataImage, *, broker_id: int, kind: int, id_: str | None) -> bool:
    """Whether the broker is the coordinator of this id by an image."""
    topic = image.topic(find_coordinator.TOPIC_OF_TYPE[kind])
    if topic is None or not id_:
        return False
    return topic.partitions[coordinator_partition(id_, len(topic.partitions))].leader == broker_id


def _names(context: Context, kind: int, id_: str) -> bool:
    """Whether this broker names itself as the coordinator of this id."""
    if context.image.topic(find_coordinator.TOPIC_OF_TYPE[kind]) is None:
        return False
    asked: Any = SimpleNamespace(
        body=FindCoordinatorRequest(coordinator_keys=(id_,), key_type=kind),
        connection=SimpleNamespace(listener=context.config.inter_broker_listener),
    )
    answer: Any = find_coordinator.handle(context, asked)
    (found,) = answer.coordinators
    return found.error_code is ErrorCode.none and bool(found.node_id == context.broker_id)


def _leads(context: Context, topic: str | UUID | None, index: int) -> bool:
    """Whether this broker names itself as the leader of this partition."""
    image = context.image
    held = image.topic(topic) if isinstance(topic, str) else image.topic_by_id(topic)
    if held is None or not 0 <= index < len(held.partitions):
        return False
    return held.partitions[index].leader == context.broker_id


def _partitions(key: ApiKey, version: int, body: memoryview) -> list[tuple[str | UUID | None, int]]:
    """Return what a request asks for; nothing for a fetch whose session knows more."""
    if key is ApiKey.PRODUCE:
        produce = parse_produce_request(body, version)
        return [
            (topic.name if topic.topic_id is None else topic.topic_id, index)
            for topic in produce.topics
            for index, _ in topic.partitions
        ]
    fetch = parse_fetch_request(body, version)
    if fetch.session_id:
        return []
    return [
        (topic.name if topic.topic_id is None else topic.topic_id, partition.partition)
        for topic in fetch.topics
        for partition in topic.partitions
    ]


def _has(value: Any, error: ErrorCode) -> bool:
    """Whether a response has this error; where it has several they are alike."""
    if isinstance(value, ErrorCode):
        return value is error
    if isinstance(value, tuple):
        return bool(value) and _has(value[0], error)
    names = getattr(value, "__dataclass_fields__", ())
    return any(_has(getattr(value, name), error) for name in names)
