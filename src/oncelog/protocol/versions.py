"""Where versions of a message differ in shape, both ways: the one place for it.

Handlers and clients know one definition per API: the class of the newest version (or of
`oncelog.protocol.canonical`). Fields that merely came later are filled with defaults by
`conversion`. What was renamed, folded into an array or must look different to an old peer is mended
here by four kinds of hook, each a function of (version, message):

- `REQUEST_UP`, `RESPONSE_UP`: from the old version's class to the newest (broker reading, client
  reading);
- `REQUEST_DOWN`, `RESPONSE_DOWN`: from the newest to an object with the old version's attributes
  (client writing, broker writing).

A hook returns its input unchanged where the version needs nothing.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.conversion import NO_RETENTION, NO_TIME, converter
from oncelog.protocol.lazy import lazy_module
from oncelog.protocol.wire import malformed

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5 import request as add_partitions_request
    from kio.schema.add_partitions_to_txn.v5 import response as add_partitions_response
    from kio.schema.delete_topics.v6 import request as delete_topics_request
    from kio.schema.find_coordinator.v6 import request as find_coordinator_request
    from kio.schema.find_coordinator.v6 import response as find_coordinator_response
    from kio.schema.leave_group.v5 import request as leave_group_request
    from kio.schema.leave_group.v5 import response as leave_group_response

    from oncelog.protocol import canonical
else:
    add_partitions_request = lazy_module("kio.schema.add_partitions_to_txn.v5.request")
    add_partitions_response = lazy_module("kio.schema.add_partitions_to_txn.v5.response")
    canonical = lazy_module("oncelog.protocol.canonical")
    delete_topics_request = lazy_module("kio.schema.delete_topics.v6.request")
    find_coordinator_request = lazy_module("kio.schema.find_coordinator.v6.request")
    find_coordinator_response = lazy_module("kio.schema.find_coordinator.v6.response")
    leave_group_request = lazy_module("kio.schema.leave_group.v5.request")
    leave_group_response = lazy_module("kio.schema.leave_group.v5.response")

Hook = Callable[[int, Any], Any]

_GROUP_KEY: Final[Any] = 0
"""Version 0 of FindCoordinator can ask for groups only."""


def _list(source: Any, target: type) -> tuple[Any, ...]:
    if source is None:
        raise malformed("array may not be null")
    if not source:
        return ()
    source_class: type = type(source[0])
    convert = converter(source_class, target)
    return tuple([convert(item) for item in source])


def _find_coordinator_request_up(version: int, old: Any) -> Any:
    if version >= 4:
        return old
    return find_coordinator_request.FindCoordinatorRequest(
        key_type=getattr(old, "key_type", _GROUP_KEY), coordinator_keys=(old.key,)
    )


def _find_coordinator_request_down(version: int, new: Any) -> Any:
    if version >= 4:
        return new
    return SimpleNamespace(key=new.coordinator_keys[0], key_type=new.key_type)


def _find_coordinator_response_up(version: int, old: Any) -> Any:
    if version >= 4:
        return old
    # Older versions do not repeat the key: the caller asked for one.
    only = find_coordinator_response.Coordinator(
        key="",
        node_id=old.node_id,
        host=old.host,
        port=old.port,
        error_code=old.error_code,
        error_message=getattr(old, "error_message", None),
    )
    return find_coordinator_response.FindCoordinatorResponse(
        throttle_time=getattr(old, "throttle_time", NO_TIME), coordinators=(only,)
    )


def _find_coordinator_response_down(version: int, new: Any) -> Any:
    if version >= 4:
        return new
    only = new.coordinators[0]
    return SimpleNamespace(
        throttle_time=new.throttle_time,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _offset_fetch_request_up(version: int, old: Any) -> Any:
    if version >= 8:
        return old
    topics = None
    if old.topics is not None:
        topics = _list(old.topics, canonical.OffsetFetchRequestTopics)
    elif version < 2:
        raise malformed("topics may not be null")
    group = canonical.OffsetFetchRequestGroup(group_id=old.group_id, topics=topics)
    return canonical.OffsetFetchRequest(
        groups=(group,), require_stable=getattr(old, "require_stable", False)
    )


def _offset_fetch_request_down(version: int, new: Any) -> Any:
    if version >= 8:
        return new
    group = new.groups[0]
    return SimpleNamespace(
        group_id=group.group_id, topics=group.topics, require_stable=new.require_stable
    )


def _offset_fetch_response_up(version: int, old: Any) -> Any:
    if version >= 8:
        return old
    group = canonical.OffsetFetchResponseGroup(
        group_id="",
        topics=_list(old.topics, canonical.OffsetFetchResponseTopics),
        error_code=getattr(old, "error_code", ErrorCode.none),
    )
    return canonical.OffsetFetchResponse(
        throttle_time=getattr(old, "throttle_time", NO_TIME), groups=(group,)
    )


def _offset_fetch_response_down(version: int, new: Any) -> Any:
    if version >= 8:
        return new
    group = new.groups[0]
    return SimpleNamespace(
        throttle_time=new.throttle_time, topics=group.topics, error_code=group.error_code
    )


def _leave_group_request_up(version: int, old: Any) -> Any:
    if version >= 3:
        return old
    member = leave_group_request.MemberIdentity(member_id=old.member_id)
    return leave_group_request.LeaveGroupRequest(group_id=old.group_id, members=(member,))


def _leave_group_request_down(version: int, new: Any) -> Any:
    if version >= 3:
        return new
    return SimpleNamespace(group_id=new.group_id, member_id=new.members[0].member_id)


def _leave_group_response_up(version: int, old: Any) -> Any:
    if version >= 3:
        return old
    return leave_group_response.LeaveGroupResponse(
        throttle_time=getattr(old, "throttle_time", NO_TIME),
        error_code=old.error_code,
        members=(),
    )


def _leave_group_response_down(version: int, new: Any) -> Any:
    # An old response has no members: the only member's error is the error.
    if version >= 3 or new.error_code != ErrorCode.none or not new.members:
        return new
    return replace(new, error_code=new.members[0].error_code)


def _delete_topics_request_up(version: int, old: Any) -> Any:
    if version >= 6:
        return old
    if old.topic_names is None:
        raise malformed("topic_names may not be null")
    state = delete_topics_request.DeleteTopicState
    topics = tuple(state(name=name, topic_id=None) for name in old.topic_names)
    return delete_topics_request.DeleteTopicsRequest(topics=topics, timeout=old.timeout)


def _delete_topics_request_down(version: int, new: Any) -> Any:
    if version >= 6:
        return new
    return SimpleNamespace(
        topic_names=tuple(topic.name for topic in new.topics), timeout=new.timeout
    )


def _add_partitions_request_up(version: int, old: Any) -> Any:
    if version >= 4:
        return old
    transaction = add_partitions_request.AddPartitionsToTxnTransaction(
        transactional_id=old.v3_and_below_transactional_id,
        producer_id=old.v3_and_below_producer_id,
        producer_epoch=old.v3_and_below_producer_epoch,
        verify_only=False,
        topics=_list(old.v3_and_below_topics, add_partitions_request.AddPartitionsToTxnTopic),
    )
    return add_partitions_request.AddPartitionsToTxnRequest(transactions=(transaction,))


def _add_partitions_request_down(version: int, new: Any) -> Any:
    if version >= 4:
        return new
    only = new.transactions[0]
    return SimpleNamespace(
        v3_and_below_transactional_id=only.transactional_id,
        v3_and_below_producer_id=only.producer_id,
        v3_and_below_producer_epoch=only.producer_epoch,
        v3_and_below_topics=only.topics,
    )


def _add_partitions_response_up(version: int, old: Any) -> Any:
    if version >= 4:
        return old
    topics = _list(
        old.results_by_topic_v3_and_below, add_partitions_response.AddPartitionsToTxnTopicResult
    )
    only = add_partitions_response.AddPartitionsToTxnResult(
        transactional_id="",  # type: ignore[arg-type]
        topic_results=topics,
    )
    return add_partitions_response.AddPartitionsToTxnResponse(
        throttle_time=old.throttle_time,
        error_code=ErrorCode.none,
        results_by_transaction=(only,),
    )


def _add_partitions_response_down(version: int, new: Any) -> Any:
    if version >= 4:
        return new
    results = new.results_by_transaction
    return SimpleNamespace(
        throttle_time=new.throttle_time,
        results_by_topic_v3_and_below=results[0].topic_results if results else (),
    )


def _with(message: Any, **more: object) -> SimpleNamespace:
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    return SimpleNamespace(**values, **more)


def _offset_commit_request_down(version: int, new: Any) -> Any:
    # -1 ms leaves the retention to the broker.
    return _with(new, retention_time=NO_RETENTION) if version < 5 else new


def _join_group_response_down(version: int, new: Any) -> Any:
    if version < 7 and new.protocol_name is None:
        return replace(new, protocol_name="")
    return new


def _api_versions_response_down(version: int, new: Any) -> Any:
    # Clients below version 4 may fail to read a feature whose lowest level is 0: they are not shown
    # it (KAFKA-17492).
    if version >= 4:
        return new
    features = tuple(feature for feature in new.supported_features if feature.min_version != 0)
    return replace(new, supported_features=features)


REQUEST_UP: Final[dict[int, Hook]] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator_request_up,
    ApiKey.OFFSET_FETCH: _offset_fetch_request_up,
    ApiKey.LEAVE_GROUP: _leave_group_request_up,
    ApiKey.DELETE_TOPICS: _delete_topics_request_up,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_request_up,
}

REQUEST_DOWN: Final[dict[int, Hook]] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator_request_down,
    ApiKey.OFFSET_FETCH: _offset_fetch_request_down,
    ApiKey.OFFSET_COMMIT: _offset_commit_request_down,
    ApiKey.LEAVE_GROUP: _leave_group_request_down,
    ApiKey.DELETE_TOPICS: _delete_topics_request_down,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_request_down,
}

RESPONSE_UP: Final[dict[int, Hook]] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator_response_up,
    ApiKey.OFFSET_FETCH: _offset_fetch_response_up,
    ApiKey.LEAVE_GROUP: _leave_group_response_up,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_response_up,
}

RESPONSE_DOWN: Final[dict[int, Hook]] = {
    ApiKey.FIND_COORDINATOR: _find_coordinator_response_down,
    ApiKey.OFFSET_FETCH: _offset_fetch_response_down,
    ApiKey.LEAVE_GROUP: _leave_group_response_down,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_response_down,
    ApiKey.JOIN_GROUP: _join_group_response_down,
    ApiKey.API_VERSIONS: _api_versions_response_down,
}
