"""`Admin`: administers topics, configs, groups, transactions and features of a cluster."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, Unpack

from oncelog.client import (
    admin_requests,
    cluster_admin,
    feature_admin,
    group_admin,
    group_offsets,
    reassigning,
    requests,
    transaction_admin,
)
from oncelog.client.acl_admin import AclAdmin
from oncelog.client.cluster import Cluster
from oncelog.client.errors import FatalError, RetriableError
from oncelog.client.log_admin import delete_records, describe_data_folders
from oncelog.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from oncelog.client.quota_admin import QuotaAdmin
from oncelog.client.settings import AdminConfig, ConnectionOptions, Role, kafka_names
from oncelog.client.user_admin import UserAdmin
from oncelog.client.values import (
    ClusterDescription,
    ConfigEntry,
    DataFolder,
    FeatureLevels,
    GroupDescription,
    GroupListing,
    NewTopic,
    OffsetAndMetadata,
    PartitionReassignment,
    ProducerState,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.unregister_broker import UnregisterBrokerRequest

__all__ = ["Admin"]

ResourceKind = Literal["topic", "broker", "group"]
"""The type of a resource with configs."""

_WHERE = {"earliest": requests.EARLIEST, "latest": requests.LATEST}


class Admin(UserAdmin, AclAdmin, QuotaAdmin, role=Role.ADMIN):
    """Administers a cluster.

    ``async with Admin("localhost:9092") as admin: await admin.create_topics([NewTopic("t", 4)])``.

    Every method raises `FatalError` with the broker's code (topic_already_exists, ...), or
    `RetriableError` when the cluster did not answer within `timeout_ms`. More options: `Producer`.
    """

    @kafka_names(Role.ADMIN)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        settings: AdminConfig | None = None,
        *,
        timeout_ms: float = 60_000,
        **cluster_options: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(Cluster(bootstrap_servers, **cluster_options), timeout_ms)

    async def __aenter__(self) -> "Admin":
        """Connect."""
        await self.start()
        return self

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create topics and wait until each has its leaders.

        Raises `FatalError` (topic_already_exists) for one that exists.
        """
        request = admin_requests.create_topics_request(topics, self._cluster.request_timeout_ms)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.CREATE_TOPICS, request)
            for topic in response.topics:
                self._check(topic.error_code, f"{topic.name}: {topic.error_message or ''}")

        await self._cluster.retrying(call, self._timeout_ms)
        for topic in topics:
            await self._until_led(topic.name)

    async def _until_led(self, name: str) -> None:
        """Wait until a topic has its leaders, unless this client may not describe it."""
        try:
            await self._cluster.topic(name, timeout_ms=self._timeout_ms)
        except FatalError as error:
            if error.code is not ErrorCode.topic_authorization_failed:
                raise

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with everything in them, and wait until they are gone from the metadata."""
        if isinstance(names, str):
            raise TypeError(f"names must be a list of topic names, not the str {names!r}")
        request = admin_requests.delete_topics_request(names, self._cluster.request_timeout_ms)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.DELETE_TOPICS, request)
            for topic in response.responses:
                self._check_topic(str(topic.name), topic.error_code, topic.error_message)

        await self._cluster.retrying(call, self._timeout_ms)
        # The controller replies before every broker knows the topic.
        await self._cluster.retrying(partial(self._check_gone, names), self._timeout_ms)

    async def list_topics(self) -> dict[str, TopicDescription]:
        """Return all topics by name, internal ones included."""

        async def call() -> dict[str, TopicDescription]:
            response = await self._cluster.request_any(
                ApiKey.METADATA, requests.metadata_request(None, create=False)
            )
            return {name: topic for name, _code, topic in requests.topics_of(response)}

        return await self._retrying(call)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Describe one topic.

        Raises `FatalError` (unknown_topic_or_partition) when it does not exist.
        """

        async def call() -> TopicDescription:
            response = await self._cluster.request_any(
                ApiKey.METADATA, requests.metadata_request([name], create=False)
            )
            ((_name, code, topic),) = requests.topics_of(response)
            if code is ErrorCode.unknown_topic_or_partition:
                raise FatalError(code, name)
            self._check(code, name)
            return topic

        return await self._retrying(call)

    async def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Increase topics' partition counts to these totals, and wait for the leaders.

        Raises `FatalError`: invalid_partitions for a count that is not larger than the present one,
        unknown_topic_or_partition. Keys move to other partitions: records of one key written before
        and after are no longer in one order.
        """
        request = admin_requests.create_partitions_request(counts, self._cluster.request_timeout_ms)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.CREATE_PARTITIONS, request)
            for result in response.results:
                self._check_topic(str(result.name), result.error_code, result.error_message)

        await self._retrying(call)
        # The controller replies before every broker knows the partitions.
        await self._retrying(partial(self._check_counts, counts))

    async def describe_configs(
        self, names: Iterable[str], kind: ResourceKind = "topic"
    ) -> dict[str, dict[str, ConfigEntry]]:
        """Return every config of each topic, broker (by its id) or group: {name: {key: entry}}.

        Raises `FatalError` (unknown_topic_or_partition) for a topic that does not exist.
        """
        found: dict[str, dict[str, ConfigEntry]] = {}

        async def call(at: str, asked: Sequence[str]) -> None:
            request = admin_requests.describe_configs_request(kind, asked)
            response = await self._ask_owner(at, ApiKey.DESCRIBE_CONFIGS, request)
            for name, code, text, entries in admin_requests.configs_of(response):
                self._check_topic(name, code, text)
                found[name] = entries

        wanted = list(names)
        # A broker knows only its own configs; any broker knows those of other resources.
        pieces = [(name, [name]) for name in wanted] if kind == "broker" else [("", wanted)]
        for at, asked in pieces:
            await self._retrying(partial(call, at, asked))
        return found

    async def incremental_alter_configs(
        self,
        name: str,
        to_set: Mapping[str, str],
        to_delete: Sequence[str] = (),
        kind: ResourceKind = "topic",
    ) -> None:
        """Set some configs of a topic, broker or group, and delete others.

        All other configs remain. All changes are applied or none. Raises `FatalError`
        (invalid_config, unknown_topic_or_partition). Source: KIP-339.
        """
        request = admin_requests.alter_configs_request(kind, name, to_set, to_delete)

        async def call() -> None:
            if kind == "broker":
                response = await self._ask_owner(name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
            else:
                response = await self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
            for result in response.responses:
                answered = str(result.resource_name)
                self._check_topic(answered, result.error_code, result.error_message)

        await self._retrying(call)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, Literal["earliest", "latest"] | int],
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """Return the start ("earliest"), end ("latest"), or first offset since a time in ms.

        Under read_committed the end is the last stable offset, otherwise the high watermark.
        """
        isolation = READ_COMMITTED if isolation_level == "read_committed" else READ_UNCOMMITTED
        timestamps = {
            tp: _WHERE[where] if isinstance(where, str) else where for tp, where in wanted.items()
        }
        found = await list_offsets(self._cluster, timestamps, isolation, self._timeout_ms)
        return {tp: at.offset for tp, at in found.items()}

    async def describe_cluster(self) -> ClusterDescription:
        """Return brokers, controller and cluster id.

        Brokers without DescribeCluster (Apache Kafka before 2.8) are asked by Metadata.
        """
        try:
            return await self._retrying(partial(cluster_admin.describe, self._cluster))
        except FatalError as error:
            if error.code is not ErrorCode.unsupported_version:
                raise
        return await self._retrying(partial(cluster_admin.describe_older, self._cluster))

    async def describe_replicas(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Describe these topics (None: all) as `describe_topic` does, with their eligible leaders.

        Brokers that know nothing of these (Apache Kafka before 3.8) name none. Raises `FatalError`
        (unknown_topic_or_partition). Source: KIP-966.
        """
        try:
            return await self._retrying(
                partial(cluster_admin.describe_replicas, self._cluster, names)
            )
        except FatalError as error:
            if error.code is not ErrorCode.unsupported_version:
                raise
        if names is None:
            return await self.list_topics()
        return {name: await self.describe_topic(name) for name in names}

    async def log_ends(
        self, node_id: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where a broker's own replicas of these partitions end, followers too.

        Those that it does not serve are left out.
        """
        wanted = tuple(partitions)
        return await self._retrying(partial(cluster_admin.log_ends, self._cluster, node_id, wanted))

    async def unregister_broker(self, broker_id: int) -> None:
        """Have the cluster forget a broker that is gone for good.

        Raises `FatalError`: broker_id_not_registered for an unknown broker; from Oncelog
        invalid_request for one that is registered, or that alone may have records of a partition.
        Source: Java's `Admin.unregisterBroker`.
        """
        request = UnregisterBrokerRequest(broker_id=broker_id)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.UNREGISTER_BROKER, request)
            self._check(response.error_code, response.error_message or "")

        await self._retrying(call)

    async def alter_partition_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """Give partitions these replicas, the preferred leader first; None cancels a reassignment.

        It returns once all have begun. Raises `FatalError` for the first that is refused, while the
        others go on: invalid_replica_assignment, no_reassignment_in_progress,
        unknown_topic_or_partition. Source: KIP-455.
        """
        await self._retrying(partial(reassigning.alter, self._cluster, self._controller, wanted))

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return all reassignments under way. Source: KIP-455."""
        return await self._retrying(partial(reassigning.ongoing, self._cluster, self._controller))

    async def describe_features(self, node_id: int | None = None) -> dict[str, FeatureLevels]:
        """Return the features that broker `node_id` (None: any) supports, with finalized levels.

        Raises `FatalError` (broker_not_available) for an unknown broker. Source: KIP-584.
        """
        return await self._retrying(
            partial(feature_admin.describe_features, self._cluster, node_id)
        )

    async def update_features(
        self,
        levels: Mapping[str, int],
        change: feature_admin.FeatureChange = "upgrade",
        *,
        dry_run: bool = False,
    ) -> None:
        """Finalize these levels, all or none; level 0 disables a feature.

        With `dry_run` the cluster only validates the request. Raises `FatalError`:
        invalid_update_version for a level that is not supported, or is in the other direction;
        unsupported_version where a broker knows no dry run. Source: KIP-584, KIP-778.
        """
        request = feature_admin.update_request(
            levels, change, self._cluster.request_timeout_ms, dry_run=dry_run
        )

        async def call() -> None:
            connection = await self._controller()
            feature_admin.require_versions(connection, change, dry_run=dry_run)
            response = await self._cluster.request(connection, ApiKey.UPDATE_FEATURES, request)
            self._check(response.error_code, response.error_message or "")
            for result in response.results:
                self._check(result.error_code, f"{result.feature}: {result.error_message or ''}")

        await self._retrying(call)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers that pass every filter.

        `states` are Kafka's names (Ongoing, CompleteCommit); `duration_ms` keeps transactions that
        began longer ago; `pattern` is a regular expression for whole ids. Raises `FatalError`:
        unsupported_version where a broker does not know a filter, invalid_request for states that
        do not exist, invalid_regular_expression, coordinator_not_available where a broker cannot
        name all its ids. Source: KIP-664, KIP-994, KIP-1152.
        """
        wanted = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
            include_expiry=True,
        )
        return await self._retrying(
            lambda: transaction_admin.list_transactions(self._cluster, wanted)
        )

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return state, producer and partitions of a transactional id, from its coordinator.

        Raises `FatalError` (transactional_id_not_found), which says how the id expired, if its
        coordinator knows. Source: KIP-664.
        """
        return await self._retrying(
            lambda: transaction_admin.describe_transaction(self._cluster, transactional_id)
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producer state of each partition, from its leader.

        It includes open transactions. Deleted partitions are left out. Source: KIP-664.
        """
        wanted = tuple(partitions)
        return await self._retrying(
            lambda: transaction_admin.describe_producers(self._cluster, wanted)
        )

    async def end_transaction(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool = False,
    ) -> None:
        """Write an end marker into one partition without the transaction coordinator.

        Use it to abort a hanging transaction, which no coordinator knows, or to write the marker of
        a decided transaction where the coordinator's is refused. In any other case a transaction
        may end one way here and another way elsewhere. `describe_producers` returns the numbers.
        Raises `FatalError` (invalid_producer_epoch, transaction_coordinator_fenced). Source:
        KIP-664.
        """
        await self._retrying(
            lambda: transaction_admin.end_transaction(
                self._cluster,
                topic_partition,
                producer_id,
                producer_epoch,
                coordinator_epoch,
                commit=commit,
            )
        )

    async def fence_producer(self, transactional_id: str, timeout_ms: int = 60_000) -> None:
        """Take over a transactional id: abort its open transaction and fence its producer.

        `timeout_ms` becomes the id's transaction timeout, until its next producer sets its own.
        """
        await self._retrying(
            lambda: transaction_admin.fence_producer(self._cluster, transactional_id, timeout_ms)
        )

    async def describe_data_folders(self, node_id: int) -> list[DataFolder]:
        """Return the log directories of a broker, with the bytes of every partition in them."""
        return await self._retrying(partial(describe_data_folders, self._cluster, node_id))

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: up to the high watermark).

        Returns the new log start offsets. Raises `FatalError`: offset_out_of_range beyond the end,
        policy_violation for topics that are only compacted. Source: KIP-107.
        """
        timeout_ms = self._cluster.request_timeout_ms
        return await self._retrying(partial(delete_records, self._cluster, before, timeout_ms))

    # --- groups -----------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """Return the groups of all brokers, by name."""
        return await self._retrying(partial(group_admin.list_groups, self._cluster))

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return state and members of a group. Raises `FatalError` (group_id_not_found)."""
        return await self._retrying(partial(group_admin.describe_group, self._cluster, group_id))

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, without open transactions; empty if unknown."""
        return await group_offsets.fetch_offsets(
            self._cluster, group_id, None, False, self._timeout_ms
        )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group without members; a group that does not exist is created.

        Raises `FatalError` (unknown_member_id) while it has members.
        """
        await self._retrying(
            partial(group_offsets.commit_offsets, self._cluster, group_id, offsets)
        )

    async def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets.

        Raises `FatalError`: non_empty_group while it has members, group_id_not_found.
        """
        await self._retrying(partial(group_admin.delete_group, self._cluster, group_id))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Delete a group's committed offsets of these partitions.

        Raises `FatalError`: group_subscribed_to_topic while a member reads one of the topics.
        """
        wanted = list(partitions)
        await self._retrying(partial(group_admin.delete_offsets, self._cluster, group_id, wanted))

    async def wait_for_topics(self, names: Iterable[str]) -> None:
        """Return when every topic exists and all its partitions have leaders."""
        for name in names:
            await self._cluster.topic(name, timeout_ms=self._timeout_ms)

    async def _check_gone(self, names: Sequence[str]) -> None:
        await self._cluster.refresh(names)
        for name in names:
            if name in self._cluster.metadata.topics:
                raise RetriableError(ErrorCode.request_timed_out, f"{name} is still there")

    async def _check_counts(self, counts: Mapping[str, int]) -> None:
        await self._cluster.refresh(counts)
        for name, count in counts.items():
            topic = self._cluster.metadata.topics.get(name)
            with_leader = [p for p in topic.partitions if p.leader >= 0] if topic else []
            if len(with_leader) < count:
                text = f"{name} has {len(with_leader)} of {count} partitions"
                raise RetriableError(ErrorCode.request_timed_out, text)
