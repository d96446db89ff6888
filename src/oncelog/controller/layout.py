"""Defines the paths and values of the metadata store.

Only this module knows the encoding, and `scram_layout` and `acl_layout` their parts;
`oncelog.controller.upgrade` knows those of earlier versions.
While brokers of two versions run, the older one may rewrite a value of the newer one: the fields
that it does not know stay in it.
The paths of what monitors of a cluster read are Kafka's, and so are the names in their values; ours
are below ``/oncelog``.

- ``/cluster/id``, and ``/controller_epoch``: a number that each new controller raises: every write
  of a controller depends on the version that it wrote, so that a replaced one changes nothing.
- ``/controller``: the broker that is the controller. It goes with that broker's session.
- ``/brokers/ids/<broker>``: a registered broker: where clients reach it, its rack, and what this
  life of it is. It goes with the broker's session.
- ``/brokers/topics/<name>``: a topic: its id, its configs, how many partitions it has, and their
  replicas, for monitors. Without it no topic exists, whatever is below it. A topic's name never
  contains a slash.
- ``/brokers/topics/<name>/partitions/<number>/state``: who leads the partition, in which epoch, the
  ISR, who else may lead, the replicas, and who may have been one. A change of one partition relies
  on no other.
- ``/oncelog/format``: the format of all this.
- ``/oncelog/broker-epochs/<broker>``: the number of a broker's last life. It stays.
- ``/oncelog/deleted-topics/<name>``: ids of topics that were deleted, each with the brokers that
  may still have a folder of it: such a folder is removed, not kept aside as a stray (D14).
- ``/oncelog/configs``: the configs that are the cluster's, as `min.insync.replicas`.
- ``/oncelog/directories/<broker>``: the ids of the log directories that hold its partitions.
- ``/oncelog/group-configs/<group>``: the configs that a group overrides; its id is percent-encoded,
  for it may hold anything.
- ``/oncelog/features``: the chosen levels of features.
- ``/oncelog/acls/<id>``: one ACL (`oncelog.controller.acl_layout`).
- ``/oncelog/client-quotas/…``: the quotas of users and clients (`oncelog.controller.quota_layout`).
- ``/oncelog/scram-…``: the SCRAM credentials of users (`oncelog.controller.scram_layout`).
- ``/oncelog/producer-ids/next``: the first producer id that no block contains yet (INV-11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NotRequired, TypedDict, cast
from urllib.parse import quote, unquote
from uuid import UUID

from oncelog.controller.image import BrokerImage, PartitionImage, TopicImage
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicId
from oncelog.core.limits import STATES_DECODED_COUNT_MAX
from oncelog.core.listeners import PLAINTEXT, Endpoint, RegisteredListener

__all__ = [
    "BROKERS_PREFIX",
    "BROKER_EPOCHS_PREFIX",
    "CLUSTER_CONFIG_PATH",
    "CLUSTER_PATH",
    "CONTROLLER_EPOCH_PATH",
    "CONTROLLER_PATH",
    "DELETED_PREFIX",
    "DIRECTORIES_PREFIX",
    "FEATURES_PATH",
    "FORMAT",
    "FORMAT_PATH",
    "GROUP_CONFIGS_PREFIX",
    "PRODUCER_IDS_PATH",
    "ROOTS",
    "TOPICS_PREFIX",
    "TopicValue",
    "broker_epoch_path",
    "broker_path",
    "check_format",
    "decode_broker",
    "decode_cluster_id",
    "decode_config",
    "decode_controller",
    "decode_deleted",
    "decode_directories",
    "decode_features",
    "decode_number",
    "decode_state",
    "decode_topic",
    "deleted_path",
    "directories_path",
    "encode_broker",
    "encode_cluster_id",
    "encode_config",
    "encode_controller",
    "encode_deleted",
    "encode_directories",
    "encode_features",
    "encode_number",
    "encode_state",
    "encode_topic",
    "group_config_path",
    "group_of",
    "partition_of",
    "state_path",
    "topic_path",
]

FORMAT = 2
"""1 had one value for a topic and all of its partitions, at other paths."""

CLUSTER_PATH = "/cluster/id"
CONTROLLER_EPOCH_PATH = "/controller_epoch"
CONTROLLER_PATH = "/controller"
BROKERS_PREFIX = "/brokers/ids/"
TOPICS_PREFIX = "/brokers/topics/"
FORMAT_PATH = "/oncelog/format"
BROKER_EPOCHS_PREFIX = "/oncelog/broker-epochs/"
CLUSTER_CONFIG_PATH = "/oncelog/configs"
DELETED_PREFIX = "/oncelog/deleted-topics/"
DIRECTORIES_PREFIX = "/oncelog/directories/"
FEATURES_PATH = "/oncelog/features"
PRODUCER_IDS_PATH = "/oncelog/producer-ids/next"
GROUP_CONFIGS_PREFIX = "/oncelog/group-configs/"
ROOTS: Final = frozenset({"brokers", "cluster", "controller", "controller_epoch", "oncelog"})
"""The first names of all paths: a store may have others beside them that are not ours."""


def check_format(value: bytes) -> None:
    """Raise `OncelogError` for the format of a newer version, or a damaged one."""
    if not value.isdigit():
        raise OncelogError(f"the metadata at {FORMAT_PATH} is damaged ({value!r})")
    if int(value) > FORMAT:
        raise OncelogError(
            f"the metadata has format {int(value)} of a newer Oncelog; this version reads formats "
            f"1 to {FORMAT}: use the newer one"
        )


def topic_path(name: str) -> str:
    """Return the path of a topic."""
    return TOPICS_PREFIX + name


def state_path(name: str, number: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS_PREFIX}{name}/partitions/{number}/state"


def partition_of(path: str) -> tuple[str, int | None]:
    """Return the topic of a path below `TOPICS_PREFIX`, and the partition if it is a state's.

    Raises `ValueError` for another path.
    """
    name, _, rest = path.removeprefix(TOPICS_PREFIX).partition("/")
    if not rest:
        return name, None
    number = int(rest.removeprefix("partitions/").removesuffix("/state"))
    if path != state_path(name, number):
        raise ValueError("no path of a topic")
    return name, number


class _Cluster(TypedDict):
    version: str
    id: str


class _Topic(TypedDict):
    version: int
    topic_id: str
    partitions: dict[str, Sequence[int]]
    config: dict[str, str]
    adding_replicas: NotRequired[Mapping[str, Sequence[int]]]
    removing_replicas: NotRequired[Mapping[str, Sequence[int]]]


class _State(TypedDict):
    version: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    controller_epoch: int
    partition_epoch: NotRequired[int]
    eligible: NotRequired[Sequence[int]]
    offline: NotRequired[Sequence[int]]
    suspects: NotRequired[Mapping[str, Sequence[int] | None]]
    replicas: NotRequired[Sequence[int]]
    adding: NotRequired[Sequence[int]]
    removing: NotRequired[Sequence[int]]
    removed: NotRequired[Sequence[int]]


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode the cluster's id."""
    value: _Cluster = {"version": "1", "id": cluster_id}
    return _json(value)


def decode_cluster_id(value: bytes) -> str:
    """Decode the cluster's id. Raises `ValueError`, `LookupError` or `TypeError` if damaged."""
    fields: _Cluster = json.loads(value)
    return str(fields["id"])


def encode_topic(topic: TopicImage) -> bytes:
    """Encode a topic without the states of its partitions.

    The replicas are here as well, where Kafka's monitors read them; the states decide.
    """
    numbered = [(str(number), part) for number, part in enumerate(topic.partitions)]
    value: _Topic = {
        "version": 3,
        "topic_id": str(topic.topic_id),
        "partitions": {number: part.replicas for number, part in numbered},
        "config": dict(topic.config),
    }
    if adding := {number: part.adding for number, part in numbered if part.adding}:
        value["adding_replicas"] = adding
    if removing := {number: part.removing for number, part in numbered if part.removing}:
        value["removing_replicas"] = removing
    return _json(value, topic.unknown_fields)


class TopicValue(NamedTuple):
    """A topic's own value: the replicas by partition."""

    topic_id: TopicId
    replicas: tuple[tuple[int, ...], ...]
    config: Mapping[str, str]
    unknown_fields: str = ""


def decode_topic(value: bytes) -> TopicValue:
    """Decode a topic. Raises `ValueError`, `LookupError` or `TypeError` if it is damaged."""
    fields: _Topic = json.loads(value)
    placed = fields["partitions"]
    return TopicValue(
        topic_id=UUID(fields["topic_id"]),
        replicas=tuple(tuple(placed[str(number)]) for number in range(len(placed))),
        config=dict(fields["config"]),
        unknown_fields=_unknown(fields, _Topic),
    )


def encode_state(partition: PartitionImage, controller_epoch: int = 0) -> bytes:
    """Encode the state of a partition, which a controller of this epoch writes."""
    value: _State = {
        "version": 1,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "controller_epoch": controller_epoch,
        "partition_epoch": partition.partition_epoch,
    }
    if partition.eligible:
        value["eligible"] = partition.eligible
    if partition.offline_replicas:
        value["offline"] = partition.offline_replicas
    if partition.suspects:
        value["suspects"] = {str(broker): log for broker, log in partition.suspects.items()}
    if partition.replicas:
        value["replicas"] = partition.replicas
    if partition.adding:
        value["adding"] = partition.adding
    if partition.removing:
        value["removing"] = partition.removing
    if partition.removed:
        value["removed"] = partition.removed
    return _json(value, partition.unknown_fields)


@lru_cache(STATES_DECODED_COUNT_MAX)
def decode_state(value: bytes) -> PartitionImage:
    """Decode the state of a partition. Raises as above.

    One of an earlier version names no replicas: the topic does. Most partitions of a cluster have
    one of a few states: each of these is decoded once.
    """
    fields: _State = json.loads(value)
    suspects = fields.get("suspects", {})
    return PartitionImage(
        leader=fields["leader"],
        leader_epoch=fields["leader_epoch"],
        isr=tuple(fields["isr"]),
        replicas=tuple(fields.get("replicas", ())),
        offline_replicas=tuple(fields.get("offline", ())),
        partition_epoch=fields.get("partition_epoch", 0),
        eligible=tuple(fields.get("eligible", ())),
        suspects={int(broker): _log_of(found) for broker, found in suspects.items()},
        adding=tuple(fields.get("adding", ())),
        removing=tuple(fields.get("removing", ())),
        removed=tuple(fields.get("removed", ())),
        unknown_fields=_unknown(fields, _State),
    )


def _log_of(value: Sequence[int] | None) -> tuple[int, int] | None:
    """The last leader epoch and the end of a suspect's log."""
    if value is None:
        return None
    last_epoch, log_end_offset = value
    return last_epoch, log_end_offset


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


def _json(value: object, unknown_fields: str = "") -> bytes:
    if unknown_fields:
        value = {**json.loads(unknown_fields), **cast("Mapping[str, object]", value)}
    return _ENCODER.encode(value).encode()


def _unknown(found: Mapping[str, Any], known: type) -> str:
    """Return the fields of a value that its type does not name, as JSON."""
    names = found.keys() - known.__annotations__.keys()
    return _ENCODER.encode({name: found[name] for name in names}) if names else ""


def deleted_path(name: str) -> str:
    """Return the path of the ids of deleted topics of that name."""
    return DELETED_PREFIX + name


def group_config_path(group_id: str) -> str:
    """Return the path of a group's configs."""
    return GROUP_CONFIGS_PREFIX + quote(group_id, safe="")


def group_of(path: str) -> str:
    """Return the group whose configs are at `path`."""
    return unquote(path.removeprefix(GROUP_CONFIGS_PREFIX))


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode the configs of a group, or of the cluster."""
    return _json(dict(config))


def decode_config(value: bytes | None) -> dict[str, str]:
    """Decode such configs. Raises `ValueError` or `TypeError` if they are damaged."""
    if value is None:
        return {}
    config: dict[str, str] = dict(json.loads(value))
    return {str(name): str(text) for name, text in config.items()}


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKERS_PREFIX}{broker_id}"


def broker_epoch_path(broker_id: int) -> str:
    """Return the path of the number of a broker's last life."""
    return f"{BROKER_EPOCHS_PREFIX}{broker_id}"


class _Levels(TypedDict):
    min_version: int
    max_version: int


class _ListenerFields(TypedDict):
    host: str
    port: int
    protocol: str


class _Broker(TypedDict):
    version: int
    host: str
    port: int
    listeners: NotRequired[Mapping[str, _ListenerFields]]
    endpoints: Sequence[str]
    listener_security_protocol_map: Mapping[str, str]
    jmx_port: int
    rack: str | None
    features: Mapping[str, _Levels]
    broker_epoch: int
    incarnation: str
    clean: bool
    shutting_down: bool


def encode_broker(broker: BrokerImage) -> bytes:
    """Encode a broker's registration: Kafka's fields, and ours."""
    own = Endpoint(broker.host, broker.port)
    listeners = broker.listeners or {PLAINTEXT: RegisteredListener(own, PLAINTEXT)}
    value: _Broker = {
        "version": 5,
        "host": broker.host,
        "port": broker.port,
        "endpoints": [f"{name}://{each.endpoint}" for name, each in listeners.items()],
        "listener_security_protocol_map": {name: each.protocol for name, each in listeners.items()},
        "jmx_port": -1,
        "rack": broker.rack,
        "features": {
            name: {"min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in broker.levels.items()
        },
        "broker_epoch": broker.broker_epoch,
        "incarnation": broker.incarnation,
        "clean": broker.is_clean,
        "shutting_down": broker.is_shutting_down,
    }
    if broker.listeners:
        value["listeners"] = {
            name: {
                "host": each.endpoint.host,
                "port": each.endpoint.port,
                "protocol": each.protocol,
            }
            for name, each in listeners.items()
        }
    return _json(value, broker.unknown_fields)


def decode_broker(path: str, value: bytes) -> BrokerImage:
    """Decode the registration at `path`. Raises as above."""
    fields: _Broker = json.loads(value)
    return BrokerImage(
        broker_id=int(path.removeprefix(BROKERS_PREFIX)),
        host=fields["host"],
        port=fields["port"],
        rack=fields["rack"],
        broker_epoch=fields["broker_epoch"],
        levels={
            name: (levels["min_version"], levels["max_version"])
            for name, levels in fields["features"].items()
        },
        is_clean=fields["clean"],
        is_shutting_down=fields["shutting_down"],
        incarnation=fields["incarnation"],
        listeners={
            name: RegisteredListener(Endpoint(each["host"], each["port"]), each["protocol"])
            for name, each in fields.get("listeners", {}).items()
        },
        unknown_fields=_unknown(fields, _Broker),
    )


class _Controller(TypedDict):
    version: int
    brokerid: int


def encode_controller(broker_id: int) -> bytes:
    """Encode which broker is the controller."""
    value: _Controller = {"version": 1, "brokerid": broker_id}
    return _json(value)


def decode_controller(value: bytes | None) -> int:
    """Decode which broker is the controller; -1 where there is none. Raises as above."""
    if value is None:
        return -1
    fields: _Controller = json.loads(value)
    return fields["brokerid"]


def directories_path(broker_id: int) -> str:
    """Return the path of the directory ids of a broker's log directories."""
    return f"{DIRECTORIES_PREFIX}{broker_id}"


def encode_directories(directory_ids: Iterable[str]) -> bytes:
    """Encode the directory ids of a broker's log directories."""
    return _json(sorted(directory_ids))


def decode_directories(value: bytes) -> frozenset[str]:
    """Decode the directory ids of a broker's log directories."""
    return frozenset(json.loads(value))


def encode_number(number: int) -> bytes:
    """Encode an epoch of a controller or a broker, or a producer id."""
    return str(number).encode()


def decode_number(value: bytes | None) -> int:
    """Decode such a number; 0 where there is none."""
    return 0 if value is None else int(value)


def encode_deleted(held: Mapping[TopicId, Iterable[int]]) -> bytes:
    """Encode the ids of deleted topics, each with the brokers that may still hold it."""
    value = {str(topic_id): list(brokers) for topic_id, brokers in held.items()}
    return _json(value)


def decode_deleted(value: bytes) -> dict[TopicId, tuple[int, ...]]:
    """Decode the ids of deleted topics, each with the brokers that may still hold it."""
    found: dict[str, list[int]] = json.loads(value)
    return {UUID(topic_id): tuple(brokers) for topic_id, brokers in found.items()}


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Encode the chosen levels of features."""
    return _json(dict(levels))


def decode_features(value: bytes | None) -> dict[str, int]:
    """Decode the chosen levels. Raises `ValueError` for an invalid value."""
    if value is None:
        return {}
    levels: dict[str, int] = json.loads(value)
    return {name: int(level) for name, level in levels.items()}
