"""Checks the clusters before a query starts, so that it need not fail later.

No producer is fenced and no record is written here: a refused query disturbs no other one. Each
refusal is one sentence with the remedy.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from oncelog.client.admin import Admin
from oncelog.client.errors import ClientError, FatalError, RetriableError
from oncelog.client.settings import Role, client_options
from oncelog.client.settings.names import PREFIX
from oncelog.client.settings.table import BY_ROLE
from oncelog.client.transactions import TransactionDriver
from oncelog.client.values import NewTopic
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.background import StoppableLoop
from oncelog.spark.batch_protocol import another_cluster
from oncelog.spark.client_settings import TIMEOUTS
from oncelog.spark.errors import UnsupportedModeError, UsageError
from oncelog.spark.marker import Marker, check_query, latest
from oncelog.spark.sink_options import MARKER_TOPIC, SinkOptions

__all__ = ["check_carrier", "examine", "explained"]

ANSWER_TIMEOUT_S: Final = 8.0
"""After so long without a reply, or without progress in reading, the error names the cluster."""

SOURCE_TIMEOUT_S: Final = 5.0
"""After so long without the id of a source's cluster, the error names the source."""

_SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")

MARKER_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
"""Configs of the marker topic; its segments are small, as each start reads the whole topic.

Compaction leaves out the newest segment, which has Kafka's default size for a week.
"""

MARKER_SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Above this ``segment.bytes`` a start warns about the marker topic."""

_CONFIGS_TEXT: Final = ", ".join(f"{name}={value}" for name, value in MARKER_TOPIC_CONFIGS.items())

log = logging.getLogger("oncelog.spark")


def examine(
    options: SinkOptions,
    sources: Sequence[Mapping[str, str]],
    query_id: str | None,
    is_query_known: bool,
) -> str | None:
    """Check the clusters, within ten seconds; return the id of the sink's cluster.

    A marker topic that compaction has not reached may take longer to read.

    `sources` are the options of the query's Kafka sources; `query_id` is that of the checkpoint,
    None when it is empty, which only counts if `is_query_known`.
    """
    loop = StoppableLoop("oncelog-check")
    try:
        return loop.call(_examine(options, sources, query_id, is_query_known))
    finally:
        loop.close()


async def _examine(
    options: SinkOptions,
    sources: Sequence[Mapping[str, str]],
    query_id: str | None,
    is_query_known: bool,
) -> str | None:
    timeout_ms = ANSWER_TIMEOUT_S * 1000
    settings = {name: v for name, v in options.client_options.items() if name not in TIMEOUTS}
    admin = Admin(options.bootstrap_servers, timeout_ms=timeout_ms, **settings)
    transaction = TransactionDriver(
        options.bootstrap_servers,
        options.protocol.application_id,
        timeout_ms=timeout_ms,
        **settings,
    )
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S) as limit:
            on_progress = functools.partial(_extend, limit)
            cluster_id = await _connect(admin)
            topics = (await admin.list_topics()).keys()
            _check_topics(topics, options)
            await _make_marker_topic(admin, topics, options)
            await _check_sources(options, sources, cluster_id, on_progress)
            await check_carrier(transaction, topics, options, on_progress)
            marker = await _marker(transaction, options, on_progress)
    except (ClientError, TimeoutError) as error:
        raise explained(error, options) from error
    finally:
        await transaction.close()
        await admin.close()
    if is_query_known and marker is not None:
        check_query(marker, query_id, options.protocol.replaces_query)
    return cluster_id


def _extend(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S)


async def _connect(admin: Admin) -> str | None:
    await admin.start()
    return (await admin.describe_cluster()).cluster_id


def _check_topics(topics: Collection[str], options: SinkOptions) -> None:
    names = options.topics or () if options.topic is None else (options.topic,)
    for name in names:
        if name not in topics:
            raise UsageError(f"topic {name!r} does not exist; create it before the query starts")


async def _make_marker_topic(admin: Admin, topics: Collection[str], options: SinkOptions) -> None:
    """Create the marker topic if it is missing, and refuse one that is not only compacted."""
    place = options.protocol.marker_partition
    if place is None:
        return
    if place.topic not in topics:
        try:
            await admin.create_topics([NewTopic(place.topic, 1, -1, MARKER_TOPIC_CONFIGS)])
            return
        except FatalError as error:
            # Another query may have created it at the same time.
            if error.code is not ErrorCode.topic_already_exists:
                raise UsageError(
                    f"the marker topic {place.topic!r} is missing and may not be created "
                    f"({error}): create it with one partition and {_CONFIGS_TEXT}, or pass "
                    "marker_topic=None to leave the marker to the group's offsets"
                ) from error
    await _check_policy(admin, place.topic)


async def _check_policy(admin: Admin, topic: str) -> None:
    try:
        configs = (await admin.describe_configs([topic]))[topic]
    except ClientError as error:
        log.warning("cleanup.policy of the marker topic %s cannot be read: %s", topic, error)
        return
    size = configs.get("segment.bytes")
    if size is not None and int(size.value or 0) > MARKER_SEGMENT_BYTES_MAX:
        log.warning(
            "the marker topic %s has segment.bytes=%s, and compaction leaves out the newest "
            "segment, which each start reads: set %s",
            topic,
            size.value,
            _CONFIGS_TEXT,
        )
    entry = configs.get("cleanup.policy")
    if entry is not None and entry.value != "compact":
        raise UsageError(
            f"the marker topic {topic!r} has cleanup.policy={entry.value}, which deletes markers: "
            "set it to compact"
        )


async def _check_sources(
    options: SinkOptions,
    sources: Sequence[Mapping[str, str]],
    cluster_id: str | None,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Refuse a source of another cluster, or of one unknown: its offsets go to this one's groups.

    The offsets of Spark's own source do not name their cluster, so no later check sees it.
    """
    if not options.protocol.commit_source_offsets:
        return
    own = options.bootstrap_servers
    others = [source for source in sources if source.get("bootstrap.servers", own) != own]
    if not others:
        return
    if cluster_id is None:
        raise UsageError(_unknown_cluster("sink", own, "it has none"))
    on_progress()
    for found in await asyncio.gather(*map(_source_cluster_id, others)):
        if found != cluster_id:
            raise UsageError(another_cluster(found, cluster_id))


async def _source_cluster_id(source: Mapping[str, str]) -> str:
    """Return the id of a source's cluster. Raises `UsageError` if it cannot be had."""
    servers = source["bootstrap.servers"]
    # Spark's own source may have settings of Java's that do not matter here.
    given = {
        f"{PREFIX}{name}": value
        for name, value in source.items()
        if name in BY_ROLE[Role.ADMIN] or name.startswith(_SECURITY_PREFIXES)
    }
    try:
        settings = client_options(Role.ADMIN, given)
        settings["timeout_ms"] = SOURCE_TIMEOUT_S * 1000
        admin = Admin(settings.pop("bootstrap_servers"), **settings)
        try:
            async with asyncio.timeout(SOURCE_TIMEOUT_S):
                await admin.start()
                found = (await admin.describe_cluster()).cluster_id
        finally:
            await admin.close()
    except (ClientError, ConfigError, ValueError, TimeoutError) as error:
        raise UsageError(_unknown_cluster("source", servers, str(error) or "no answer")) from error
    if found is None:
        raise UsageError(_unknown_cluster("source", servers, "it has none"))
    return found


def _unknown_cluster(party: str, servers: str, reason: str) -> str:
    return (
        f"the {party} at {servers} cannot be asked for its cluster id ({reason[:400]}), so offsets "
        "of one cluster could go to the groups of another: pass commit_source_offsets=False, and "
        "the marker_topic alone carries the batch marker; or, if source and sink are on one "
        "cluster, give both the same bootstrap servers"
    )


class CommittedValues(Protocol):
    """The part of `TransactionDriver` that reads the marker topic."""

    async def committed_value(
        self,
        topic_partition: TopicPartition,
        key: bytes,
        *,
        is_final: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> bytes | None:
        """The last committed value of `key`; `on_progress` is called after each fetch."""


async def check_carrier(
    transaction: CommittedValues,
    topics: Collection[str],
    options: SinkOptions,
    on_progress: Callable[[], None] = lambda: None,
) -> None:
    """Refuse to leave the marker to the group once the marker topic has one of the application.

    When the group's offsets expired, that one would count again, and it would be too old.
    """
    if options.protocol.marker_partition is not None or MARKER_TOPIC not in topics:
        return
    application_id = options.protocol.application_id
    place = TopicPartition(MARKER_TOPIC, 0)
    try:
        value = await transaction.committed_value(
            place, application_id.encode(), is_final=False, on_progress=on_progress
        )
    except FatalError as error:
        log.info("the marker topic %s cannot be read: %s", MARKER_TOPIC, error)
        return
    if value is not None:
        raise UsageError(
            f"the marker of application_id {application_id!r} is in topic {MARKER_TOPIC!r}, and "
            "one in the group alone would expire and leave that one behind: leave "
            "marker_topic=None out"
        )


async def _marker(
    transaction: TransactionDriver, options: SinkOptions, on_progress: Callable[[], None]
) -> Marker | None:
    """Return the current marker; it is definitive only after InitProducerId."""
    application_id, place = options.protocol.application_id, options.protocol.marker_partition
    offsets = await transaction.fetch_offsets(application_id, None, require_stable=False)
    texts: list[str | None] = [committed.metadata for committed in offsets.values()]
    if place is not None:
        key = application_id.encode()
        value = await transaction.committed_value(
            place, key, is_final=False, on_progress=on_progress
        )
        texts.append(None if value is None else value.decode())
    return latest(texts)


_PARTITION_AWAY: Final = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
    }
)
"""The cluster answers, and a partition has no leader or too few replicas in sync."""


def explained(error: Exception, options: SinkOptions) -> Exception:
    """Convert a cluster's refusal or silence to an error with a remedy; return others unchanged."""
    application_id = options.protocol.application_id
    if isinstance(error, ClientError) and error.code is ErrorCode.unstable_offset_commit:
        return UsageError(
            f"the offsets of group {application_id!r} are still undecided ({error}): the next "
            "start settles the batch, once the transaction has ended; if the cluster never ends "
            "it, `oncelog transactions find-hanging` shows it"
        )
    if isinstance(error, RetriableError) and error.code in _PARTITION_AWAY:
        return UsageError(
            f"a partition stays away ({error}): nothing of the batch is visible, and the next "
            "start writes it, unless it is committed, once enough replicas of the partition are "
            "back (`oncelog cluster status`)"
        )
    if isinstance(error, TimeoutError | RetriableError):
        return UsageError(
            f"the cluster at {options.bootstrap_servers} does not answer ({error or 'timeout'}): "
            "check bootstrap_servers, and that its transaction coordinator is there "
            "(transaction.state.log.replication.factor is at most the number of brokers)"
        )
    if not isinstance(error, ClientError):
        return error
    if error.code is ErrorCode.unsupported_version:
        return UnsupportedModeError(
            f"the brokers at {options.bootstrap_servers} do not speak what transactions need "
            f"({error.message}): exactly_once needs Apache Kafka 2.5 or newer, or Oncelog"
        )
    sentences: dict[ErrorCode, str] = {
        ErrorCode.invalid_transaction_timeout: (
            f"transaction_timeout_ms={options.transaction_timeout_ms} is above the brokers' "
            "transaction.max.timeout.ms: lower it, or have the brokers allow it"
        ),
        ErrorCode.transactional_id_authorization_failed: (
            f"this user may not write under transactional id {application_id!r}: grant Write and "
            "Describe on it"
        ),
        ErrorCode.group_authorization_failed: (
            f"this user may not commit offsets of group {application_id!r}: grant Read on it"
        ),
        ErrorCode.topic_authorization_failed: (
            f"this user may not write to a topic ({error.message}): grant Write and Describe on it"
        ),
    }
    text = sentences.get(error.code)
    return error if text is None else UsageError(text)
