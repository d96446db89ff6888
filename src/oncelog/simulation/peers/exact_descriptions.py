"""Asks for all else that a broker says about one client's topics, its group and the cluster.

Every field of every answer is compared with the model, but free space and texts.

Parameters: those of `exact_asking`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from oncelog.core.config import ConfigSource, SynonymValue
from oncelog.core.config_definition import (
    ConfigSupport,
    ConfigType,
    ConfigValue,
    Definition,
    format_value,
)
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.core.group_keys import GROUP_KEYS, group_synonyms, group_value
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.messages import (
    api_versions,
    describe_cluster,
    describe_configs,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
    update_features,
)
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import ExactAnswer
from oncelog.simulation.peers.exact_folders import (
    ask_for_folders,
    ask_for_moves,
    delete_records_of_empty_logs,
)
from oncelog.simulation.peers.exact_metadata import CLUSTER_OPERATIONS, NOT_ASKED, TopicsSeen
from oncelog.simulation.peers.exact_refusals import ask_for_what_is_refused
from oncelog.simulation.peers.exact_topics import bad_name
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["BROKER", "GROUP", "TOPIC", "Descriptions"]

TOPIC: Final = 2
BROKER: Final = 4
GROUP: Final = 32
_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
"""Types of resources."""

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_LEVELS: Final = {"transaction.version": (0, 2, 2), "group.version": (0, 1, 1)}
"""Features: the least level, the highest, the default."""


class Descriptions(TopicsSeen):
    """Asks for everything that an administrator can ask about its topics and groups."""

    def __init__(self, context: ClientContext, wire: PeerWire) -> None:
        super().__init__(context, wire)
        self.group = f"{self.prefix}group"
        self.group_config: dict[str, str] | None = {}
        """The group's configs; None where a change was not answered."""
        self._features_epoch = -1
        self._questions: tuple[Callable[[], Awaitable[None]], ...] = (
            self.look_at_topics,
            self.name_topics,
            self.turn_pages,
            self._configs,
            self._configs,
            self._resources,
            self._cluster,
            self._elections,
            self._features,
            self._versions,
            partial(ask_for_folders, self),
            partial(ask_for_moves, self),
            partial(delete_records_of_empty_logs, self),
            partial(ask_for_what_is_refused, self),
        )

    async def describe_something(self) -> None:
        """Ask one question. Raises `LostError`."""
        await self.context.rng.choice(self._questions)()

    async def has_described_everything(self) -> bool:
        """Ask all questions; return whether all were answered."""
        try:
            for ask in self._questions:
                await ask()
        except LostError:
            return False
        return True

    # --- configs ----------------------------------------------------------------------

    async def _configs(self) -> None:
        """DescribeConfigs of a few resources, known and unknown ones."""
        rng, chance = self.context.rng, self.context.chance
        asked: dict[tuple[int, str], tuple[str, ...] | None] = {}
        for _ in range(rng.choice((1, 1, 2, 3))):
            kind = rng.choices((TOPIC, BROKER, GROUP, _CLIENT_METRICS, 99), (10, 2, 5, 1, 1))[0]
            names = {
                TOPIC: (*self.model.names(), f"{self.prefix}none", "a b"),
                BROKER: (str(self.node), "", str(self.node + 1)),
                GROUP: (self.group, self.group, f"{self.prefix}other", ""),
            }
            keys = rng.choice((None, (), ("cleanup.policy", "retention.ms", "no.such.key")))
            if kind == GROUP and self.group_config is None:
                continue
            asked[kind, rng.choice(names.get(kind, ("x", "")))] = keys
        resources = [
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
            for (kind, name), keys in asked.items()
        ]
        request = describe_configs.DescribeConfigsRequest(
            resources=(*resources, *resources[: rng.choice((0, 0, 1))]),
            include_synonyms=chance(0.5),
            include_documentation=chance(0.3),
        )
        answer = await self.ask(ApiKey.DESCRIBE_CONFIGS, request)
        results = [
            self._configs_of(answer, kind, name, keys) for (kind, name), keys in asked.items()
        ]
        self.compare(answer, describe_configs.DescribeConfigsResponse(results=tuple(results)))

    def _configs_of(
        self,
        answer: ExactAnswer[describe_configs.DescribeConfigsResponse],
        kind: int,
        name: str,
        keys: tuple[str, ...] | None,
    ) -> describe_configs.DescribeConfigsResult:
        error = self._config_error(kind, name)
        if error is not ErrorCode.none:
            return describe_configs.DescribeConfigsResult(
                error_code=error,
                error_message="some text",
                resource_type=kind,
                resource_name=name,
            )
        settings, entries = self.settings, []
        if kind == TOPIC:
            own = self.model.topics[name].config
            for key in _chosen(TOPIC_KEYS, keys):
                value, sources = settings.topic_value(own, key), settings.topic_synonyms(own, key)
                entries.append(_entry(answer, TOPIC_KEYS[key][0], value, sources, False))
        elif kind == BROKER and name:
            for key in _chosen(BROKER_KEYS, keys):
                value, definition = settings.get(key), BROKER_KEYS[key]
                if value is not None or definition.support is not ConfigSupport.NO_EFFECT:
                    sources = settings.broker_synonyms(key)
                    entries.append(_entry(answer, definition, value, sources, True))
        elif kind == GROUP:
            ours = (self.group_config or {}) if name == self.group else {}
            for key in _chosen(GROUP_KEYS, keys):
                if key in ours or GROUP_KEYS[key].support is not ConfigSupport.NO_EFFECT:
                    value = group_value(settings, ours, key)
                    sources = group_synonyms(settings, ours, key)
                    entries.append(_entry(answer, GROUP_KEYS[key], value, sources, False))
        return describe_configs.DescribeConfigsResult(
            resource_type=kind, resource_name=name, configs=tuple(entries)
        )

    def _config_error(self, kind: int, name: str) -> ErrorCode:
        if kind == TOPIC:
            if bad_name(name):
                return ErrorCode.invalid_topic_exception
            is_known = name in self.model.topics
            return ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition
        is_known = {BROKER: name in ("", str(self.node)), GROUP: name != ""}.get(
            kind, kind == _CLIENT_METRICS and name != ""
        )
        return ErrorCode.none if is_known else ErrorCode.invalid_request

    async def _resources(self) -> None:
        """ListConfigResources of some types."""
        rng = self.context.rng
        kinds = tuple(rng.sample((TOPIC, BROKER, _BROKER_LOGGER, _CLIENT_METRICS, GROUP), 2))
        kinds = rng.choice((kinds, kinds, (), (*kinds, 77)))
        request = list_config_resources.ListConfigResourcesRequest(resource_types=kinds)
        answer = await self.ask(ApiKey.LIST_CONFIG_RESOURCES, request)
        if answer.version == 0:
            self.compare(answer, list_config_resources.ListConfigResourcesResponse())
            return
        if 77 in kinds:
            refused = ErrorCode.unsupported_version
            wanted = list_config_resources.ListConfigResourcesResponse(error_code=refused)
            self.compare(answer, wanted)
            return
        told = sorted(
            (r.resource_type, r.resource_name)
            for r in answer.response.config_resources
            if r.resource_type not in (TOPIC, GROUP) or r.resource_name.startswith(self.prefix)
        )
        rows: list[tuple[int, str]] = []
        for kind in sorted(kinds or (TOPIC, BROKER, _BROKER_LOGGER, GROUP)):
            if kind == TOPIC:
                rows += [(kind, name) for name in self.model.topics]
            elif kind in (BROKER, _BROKER_LOGGER):
                rows.append((kind, str(self.node)))
            elif kind == GROUP and self.group_config:
                rows.append((kind, self.group))
        told = [row for row in told if row[1] not in self.model.doubtful]
        if self.group_config is None:
            told = [row for row in told if row[1] != self.group]
        self.expect(
            answer.response.error_code is ErrorCode.none and told == sorted(rows),
            lambda: f"ListConfigResources of {kinds} gave {told}, wanted {sorted(rows)}",
        )

    # --- the cluster ------------------------------------------------------------------

    async def _cluster(self) -> None:
        """DescribeCluster, of brokers and of what a broker does not know."""
        chance = self.context.chance
        kind = self.context.rng.choice((1, 1, 1, 2, 3))
        is_asked = chance(0.5)
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=is_asked,
            endpoint_type=kind,
            include_fenced_brokers=chance(0.5),
        )
        answer = await self.ask(ApiKey.DESCRIBE_CLUSTER, request)
        if answer.request.endpoint_type != 1:
            refused = (
                ErrorCode.mismatched_endpoint_type
                if answer.request.endpoint_type == 2
                else ErrorCode.unsupported_endpoint_type
            )
            self.compare(
                answer,
                describe_cluster.DescribeClusterResponse(
                    error_code=refused, error_message="some text"
                ),
            )
            return
        host, port = self.context.bootstrap
        broker = describe_cluster.DescribeClusterBroker(broker_id=self.node, host=host, port=port)
        self.compare(
            answer,
            describe_cluster.DescribeClusterResponse(
                cluster_id=self.cluster_id or "",
                controller_id=self.node,
                brokers=(broker,),
                cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else NOT_ASKED,
            ),
        )

    async def _elections(self) -> None:
        """ElectLeaders of our partitions, and no partition is being moved to other brokers."""
        rng = self.context.rng
        kind = rng.choice((_PREFERRED, _PREFERRED, _UNCLEAN, 5))
        asked = {
            topic.name: list(range(topic.partitions + 1))
            for topic in rng.sample(
                list(self.model.topics.values()), min(2, len(self.model.topics))
            )
        }
        asked[f"{self.prefix}none"] = [0]
        request = elect_leaders.ElectLeadersRequest(
            election_type=kind,
            topic_partitions=tuple(
                elect_leaders.TopicPartitions(topic=name, partitions=tuple(indexes))
                for name, indexes in asked.items()
            ),
        )
        answer = await self.ask(ApiKey.ELECT_LEADERS, request)
        is_refused = answer.request.election_type == 5
        results = []
        for name, indexes in asked.items():
            topic = self.model.topics.get(name)
            codes = []
            for index in indexes:
                is_known = topic is not None and index < topic.partitions
                error = ErrorCode.election_not_needed
                error = error if is_known else ErrorCode.unknown_topic_or_partition
                codes.append(
                    elect_leaders.PartitionResult(
                        partition_id=index,
                        error_code=ErrorCode.invalid_request if is_refused else error,
                        error_message="some text",
                    )
                )
            results.append(
                elect_leaders.ReplicaElectionResult(topic=name, partition_result=tuple(codes))
            )
        self.compare(
            answer,
            elect_leaders.ElectLeadersResponse(
                error_code=ErrorCode.invalid_request if is_refused else ErrorCode.none,
                replica_election_results=tuple(results),
            ),
        )
        moved = list_partition_reassignments
        moves = await self.ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, moved.ListPartitionReassignmentsRequest()
        )
        self.compare(moves, moved.ListPartitionReassignmentsResponse())

    async def _features(self) -> None:
        """UpdateFeatures: what is refused, and what changes nothing."""
        rng, chance = self.context.rng, self.context.chance
        name = rng.choice((*_LEVELS, "no.such.feature"))
        level = rng.choice((self._level(name), self._level(name), -1, 9))
        updates = [
            update_features.FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                allow_downgrade=chance(0.3),
                upgrade_type=rng.choice((1, 1, 1, 2, 3, 0, 4)),
            )
        ]
        if chance(0.3):
            other = rng.choice(list(_LEVELS))
            updates.insert(
                0,
                update_features.FeatureUpdateKey(
                    feature=other, max_version_level=self._level(other)
                ),
            )
        request = update_features.UpdateFeaturesRequest(
            feature_updates=tuple(updates), validate_only=chance(0.5)
        )
        answer = await self.ask(ApiKey.UPDATE_FEATURES, request)
        is_refused = any(
            update.feature not in _LEVELS
            or update.max_version_level != self._level(update.feature)
            or update.upgrade_type not in (1, 2, 3)
            for update in answer.request.feature_updates
        )
        results = [update_features.UpdatableFeatureResult(feature=u.feature) for u in updates]
        refused = update_features.UpdateFeaturesResponse(
            error_code=ErrorCode.invalid_update_version, error_message="some text"
        )
        self.compare(
            answer,
            refused
            if is_refused
            else update_features.UpdateFeaturesResponse(results=tuple(results)),
        )

    def _level(self, name: str) -> int:
        """Return the level of a feature: of the settings, else its default."""
        if name not in _LEVELS:
            return 1
        given = self.context.settings.get(name)
        return _LEVELS[name][2] if given is None else int(given)

    async def _versions(self) -> None:
        """ApiVersions: ranges and features, and whom the client means (KIP-1242)."""
        rng = self.context.rng
        cluster, node = rng.choice(
            (
                (None, -1),
                (None, -1),
                (self.cluster_id, self.node),
                ("another", self.node),
                (self.cluster_id, self.node + 1),
                (self.cluster_id, -1),
                (None, self.node),
            )
        )
        software = rng.choice(("a-client", "a-client", "a-client", "-", ""))
        request = api_versions.ApiVersionsRequest(
            client_software_name=software,
            client_software_version="1.0",
            cluster_id=cluster,
            node_id=node,
        )
        answer = await self.ask(ApiKey.API_VERSIONS, request)
        seen = answer.request
        is_odd = answer.version >= 3 and (
            software in ("-", "") or (seen.cluster_id is None) != (seen.node_id == -1)
        )
        is_meant = seen.cluster_id in (None, self.cluster_id) and seen.node_id in (-1, self.node)
        told = answer.response
        if is_odd or not is_meant:
            refused = ErrorCode.invalid_request if is_odd else ErrorCode.rebootstrap_required
            self.compare(answer, api_versions.ApiVersionsResponse(error_code=refused))
            return
        if answer.version >= 3:
            self.expect(
                told.finalized_features_epoch >= max(self._features_epoch, 0),
                lambda: (
                    f"the epoch of the features went from {self._features_epoch} "
                    f"to {told.finalized_features_epoch}"
                ),
            )
            self._features_epoch = told.finalized_features_epoch
        self.compare(answer, self._announced(answer))

    def _announced(
        self, answer: ExactAnswer[api_versions.ApiVersionsResponse]
    ) -> api_versions.ApiVersionsResponse:
        """Return the answer to ApiVersions of a client that means this broker, or none."""
        ranges = [
            api_versions.ApiVersion(
                api_key=api,
                min_version=ADVERTISED[ApiKey(api)].min,
                max_version=ADVERTISED[ApiKey(api)].max,
            )
            for api in sorted(answer.connection.support.versions)
        ]
        supported = [
            api_versions.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high, _) in _LEVELS.items()
            if answer.version >= 4
        ]
        finalized = [
            api_versions.FinalizedFeatureKey(
                name=name, max_version_level=self._level(name), min_version_level=self._level(name)
            )
            for name in _LEVELS
            if self._level(name) > 0
        ]
        return api_versions.ApiVersionsResponse(
            api_keys=tuple(ranges),
            supported_features=tuple(supported),
            finalized_features_epoch=answer.response.finalized_features_epoch,
            finalized_features=tuple(finalized),
        )


def _chosen(table: Iterable[str], keys: tuple[str, ...] | None) -> list[str]:
    """Return the keys that an answer has: no list and an empty one ask for all."""
    return sorted(key for key in table if not keys or key in keys)


def _entry(
    answer: ExactAnswer[describe_configs.DescribeConfigsResponse],
    definition: Definition,
    value: ConfigValue,
    sources: tuple[SynonymValue, ...],
    is_read_only: bool,
) -> describe_configs.DescribeConfigsResourceResult:
    is_secret = definition.type is ConfigType.PASSWORD
    shown = answer.request.include_synonyms and not is_secret
    return describe_configs.DescribeConfigsResourceResult(
        name=definition.name,
        value=None if is_secret else format_value(value),
        read_only=is_read_only,
        config_source=(sources[0].source if sources else ConfigSource.DEFAULT).value,
        is_sensitive=is_secret,
        synonyms=tuple(
            describe_configs.DescribeConfigsSynonym(
                name=each.name, value=each.value, source=each.source.value
            )
            for each in (sources if shown else ())
        ),
        config_type=definition.type.value,
        documentation=definition.doc if answer.request.include_documentation else None,
    )
