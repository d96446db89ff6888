"""Valid requests of every API and version that the broker serves, made from kio's descriptions,
and from ours for versions that are newer than kio.

Values are chosen by the name of their field, from what exists in the broker (topics, groups, member
ids, producer ids that earlier answers gave), so that requests get past the first check and what is
mutated later gets deep. Some values are hostile by themselves: negative, huge, empty, malformed.
"""

from __future__ import annotations

import datetime
import io
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from kio.serial import entity_writer
from kio.static.constants import EntityType

from oncelog.broker.apis import HANDLERS
from oncelog.controller import events
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.event_codec import encode_event
from oncelog.controller.topics import TopicToCreate
from oncelog.core.ids import TopicPartition
from oncelog.protocol import codec
from oncelog.protocol.api import PRIVATE, VERSIONS, ApiKey, accepts, is_flexible
from oncelog.protocol.fields import shapes
from oncelog.protocol.headers import request_header_bytes
from tests.fuzz import batches
from tests.fuzz.kio_shapes import shape_of

TOPICS = ("plain", "compact", "stamped", "packed", "dated", "undated")
"""Topics that every fuzzed broker has; two partitions each."""

WAIT_MS_MAX = 500
"""Mutated requests may ask for more; those that we make ask to wait this long at most."""

_INT_BITS = {
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "uint32": 32,
    "int64": 64,
    "uint64": 64,
}
_NAMES = ("a", "b", "", "absent", "..", "__consumer_offsets", "__transaction_state", "x" * 250)
_GROUPS = ("g1", "g2", "g3")
_TRANSACTIONAL_IDS = ("t1", "t2", "t3", "t4")
_PROTOCOLS = ("range", "roundrobin")
_HARVEST_MAX = 16
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Frame(NamedTuple):
    """A request without its size, where its body begins, and for whom it speaks."""

    api: ApiKey
    version: int
    data: bytes
    body: int
    group_id: str
    transactional_id: str


@dataclass
class Known:
    """What the broker told us: values that make later requests meaningful."""

    topic_ids: list[uuid.UUID] = field(default_factory=list)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Per group the newest member and its generation."""
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Per transactional id the newest producer id and epoch."""
    sessions: list[tuple[int, int]] = field(default_factory=list)
    """Fetch sessions with the epoch that comes next."""

    def learn(self, frame: Frame, response: Any) -> None:
        """Keep the ids that the answer to `frame` gives."""
        api = frame.api
        if api is ApiKey.JOIN_GROUP and response.member_id:
            self.members[frame.group_id] = (response.member_id, response.generation_id)
        elif api is ApiKey.INIT_PRODUCER_ID or (api is ApiKey.END_TXN and frame.version >= 5):
            if response.producer_id >= 0:
                known = (response.producer_id, response.producer_epoch)
                self.producers[frame.transactional_id] = known
        elif api is ApiKey.METADATA and frame.version >= 10:
            found = [topic.topic_id for topic in response.topics if topic.topic_id is not None]
            self.topic_ids = (self.topic_ids + found)[-_HARVEST_MAX:]
        elif api is ApiKey.FETCH and response.session_id:
            self.sessions = [*self.sessions, (response.session_id, 1)][-_HARVEST_MAX:]


def served() -> list[tuple[ApiKey, int]]:
    """Every API and version that is answered."""
    return [
        (api, version)
        for api in sorted(HANDLERS)
        for version in range(VERSIONS[api].min, VERSIONS[api].max + 1)
        if accepts(api, version)
    ]


@cache
def request_class(api: ApiKey, version: int) -> type:
    """kio's class of exactly this version."""
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.request")
    for candidate in vars(module).values():
        if getattr(candidate, "__type__", None) is EntityType.request:
            return candidate  # type: ignore[no-any-return]
    raise LookupError(module.__name__)


class Corpus:
    """Makes valid frames, reproducibly from its random numbers and what it knows."""

    def __init__(self, random_: random.Random, known: Known) -> None:
        self.random = random_
        self.known = known
        self.served = served()
        self._apis = sorted({api for api, _ in self.served})
        self._versions = {
            api: [version for other, version in self.served if other is api] for api in self._apis
        }
        self._weights = [_API_WEIGHTS.get(api, 1.0) for api in self._apis]
        self._correlation_id = 0
        self._api = ApiKey.API_VERSIONS
        self._group_id = self._transactional_id = ""
        self._session = (0, -1)
        self._producer = (-1, -1)

    def frame(self, api: ApiKey | None = None, version: int | None = None) -> Frame:
        """A valid request, of any API unless told."""
        if api is None:
            api = self.random.choices(self._apis, self._weights)[0]
        if version is None:
            version = self.random.choice(self._versions[api])
        self._correlation_id = (self._correlation_id + 1) % 2**31
        self._api = api
        # One request speaks for one group, one producer and one fetch session.
        self._group_id = self.random.choice(_GROUPS)
        self._transactional_id = self.random.choice(_TRANSACTIONAL_IDS)
        fresh = api is ApiKey.INIT_PRODUCER_ID and self.random.random() < 0.8
        self._producer = (
            (-1, -1) if fresh else self.known.producers.get(self._transactional_id, (-1, -1))
        )
        self._session = (0, self.random.choice((0, -1)))
        if self.known.sessions and self.random.random() < 0.6:
            self._session = self.random.choice(self.known.sessions)
        client_id = self.random.choice(("fuzz", "fuzz", None, ""))
        header = request_header_bytes(
            api, version, self._correlation_id, client_id, is_flexible(api, version)
        )
        data = header + self._body(api, version)
        return Frame(api, version, data, len(header), self._group_id, self._transactional_id)

    def _body(self, api: ApiKey, version: int) -> bytes:
        if api in PRIVATE or find_spec(f"kio.schema.{api.schema_name}.v{version}") is None:
            out = bytearray()
            newest = codec.request_class(api)
            write = codec.writer(newest, version, flexible=is_flexible(api, version))
            write(out, self.own(newest, version))
            return bytes(out)
        buffer = io.BytesIO()
        cls = request_class(api, version)
        _writer(cls)(buffer, self.value(cls))
        return buffer.getvalue()

    def value(self, cls: type) -> Any:
        """An instance of a kio class."""
        return cls(**{name: make(self) for name, make in _plan(cls)})

    def own(self, cls: type, version: int) -> Any:
        """An instance of a class of ours, for a version that is newer than kio."""
        return cls(**{name: make(self) for name, make in _own_plan(cls, version)})

    # --- single fields, by their names

    def name(self) -> str:
        """Of a topic, mostly one that exists; in JoinGroup of a protocol."""
        r = self.random
        if self._api is ApiKey.JOIN_GROUP:
            return r.choice(_PROTOCOLS)
        return r.choice(TOPICS) if r.random() < 0.85 else r.choice(_NAMES)

    def topic_id(self) -> uuid.UUID | None:
        """Of a topic, mostly one that exists."""
        if self.known.topic_ids and self.random.random() < 0.85:
            return self.random.choice(self.known.topic_ids)
        return self.random.choice((None, uuid.UUID(int=7)))

    def text(self, name: str) -> str:
        """A string for the field of this name."""
        r = self.random
        if r.random() < 0.03:
            return r.choice(("", "\0", "é" * 40, "z" * 3000))
        if name in ("transactional_id", "v3_and_below_transactional_id"):
            return self._transactional_id
        if name in ("group_id", "key", "coordinator_keys", "groups", "groups_names"):
            return self._group_id
        if name == "member_id":
            return self.known.members.get(self._group_id, ("", -1))[0]
        if name in ("topic", "topic_names", "resource_name"):
            return self.name()
        if name in ("protocol_name", "protocol_type"):
            return "consumer" if name == "protocol_type" else r.choice(_PROTOCOLS)
        if name == "configuration_keys":
            return r.choice(("cleanup.policy", "retention.ms", "nothing"))
        return self.name()

    def number(self, name: str, bits: int) -> int:
        """An integer for the field of this name."""
        r = self.random
        roll = r.random()
        if roll < 0.04:
            return r.choice((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -2, r.getrandbits(bits - 1)))
        if roll < 0.95:
            if name.endswith("producer_id"):
                return self._producer[0]
            if name.endswith("producer_epoch"):
                return self._producer[1]
            if name in ("generation_id", "generation_id_or_member_epoch"):
                return self.known.members.get(self._group_id, ("", -1))[1]
            if name in ("session_id", "session_epoch"):
                return self._session[name == "session_epoch"]
        chosen = _NUMBERS.get(name, (0, 0, 0, 1, 1, 2, -1, 3))
        return r.choice(chosen)

    def records(self) -> bytes:
        """Record batches for a produce request, half of them good."""
        producer = self._producer if self.random.random() < 0.6 else (-1, -1)
        make = batches.good if self.random.random() < 0.55 else batches.bad
        return make(self.random, producer)

    def data(self, name: str) -> bytes:
        """Bytes that the broker should not interpret, and some that it does."""
        r = self.random
        if name == "records":
            return self.records()
        if name == "event":
            return r.choice(_EVENTS)
        if r.random() < 0.4:
            return b"\0\1\0\0\0\1\0\5plain\xff\xff\xff\xff"
        return r.randbytes(r.choice((0, 1, 7, 60)))


_SENT: tuple[ControllerEvent[Any], ...] = (
    events.CreateTopics((TopicToCreate("a", 2, 1),)),
    events.ElectLeaders(None),
    events.ForgetBroker(9),
    events.BrokersChanged(),
    events.BrokerShuttingDown(9, 1),
    events.BrokerRegistered(9, 1, frozenset({"d"}), True, {}, {}, {}),
    events.AlterReassignments((events.Reassignment(TopicPartition("plain", 0), (1,)),)),
    events.ReplicasRemoved(1, (events.RemovedReplica(uuid.UUID(int=7), 0, 0),)),
    events.DirectoryFailed(1, (TopicPartition("plain", 0),)),
    events.ReplicasMadeAgain(1, (events.OffLineReplica(uuid.UUID(int=7), 0, 0),)),
    events.DeletionsConfirmed(1, frozenset({uuid.UUID(int=7)})),
    events.AlterPartition(
        1, 1, (events.IsrChange(uuid.UUID(int=7), 0, 0, 0, (events.IsrMember(1, 1),)),)
    ),
)
_EVENTS = tuple(map(encode_event, _SENT))
"""What brokers of the cluster send; others can, too."""

_NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, -1, 1, 1, 0, 2),
    "partition_max_bytes": (0, 1, 100, 2**20, 2**31 - 1),
    "max_bytes": (0, 1, 100, 2**20, 2**31 - 1),
    "min_bytes": (0, 0, 0, 1, 1, 100),
    "isolation_level": (0, 1),
    "replica_id": (-1,),
    "fetch_offset": (0, 0, 0, 1, 5, 40, -1, 2**40),
    "session_epoch": (-1, 0, 1, 2),
    "session_id": (0, 1, 2),
    "num_partitions": (1, 1, 2, -1, 0),
    "count": (1, 2, 3, 0, -1),
    "replication_factor": (1, 1, 1, -1, 2, 0),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1_600_000_000_000),
    "key_type": (0, 0, 1, 1, 2),
    "resource_type": (2, 2, 2, 4, 8, 32),
    "current_leader_epoch": (-1, -1, 0, 1),
    "generation_id": (-1, 0, 1, 2, 3),
    "generation_id_or_member_epoch": (-1, 0, 1, 2, 3),
    "committed_offset": (0, 5, 2**40, -1),
}

_API_WEIGHTS = {
    ApiKey.PRODUCE: 4.0,
    ApiKey.FETCH: 2.0,
    ApiKey.JOIN_GROUP: 2.0,
    ApiKey.SYNC_GROUP: 2.0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1.5,
    ApiKey.DELETE_TOPICS: 0.2,
}
"""How often each API is chosen, 1 if not here."""

Maker = Callable[[Corpus], Any]


@cache
def _writer(cls: type) -> Callable[[Any, Any], None]:
    return entity_writer(cls)


@cache
def _plan(cls: type) -> list[tuple[str, Maker]]:
    """How to make each field."""
    plan = []
    for item in fields(cls):
        shape = shape_of(item)
        make: Maker
        if is_dataclass(shape.inner):
            make = _entity(shape.inner)
        else:
            make = _primitive(item.name, item.metadata["kafka_type"])
        if shape.is_array:
            # Kafka refuses more than one batch per partition, and names each only once.
            make = _several(make)
        if shape.is_nullable:
            make = _perhaps(make, 0.25 if item.name != "records" else 0.03)
        if item.name == "transactional_id" and shape.is_nullable:
            make = _perhaps(make, 0.5)
        plan.append((item.name, make))
    return plan


@cache
def _own_plan(cls: type, version: int) -> list[tuple[str, Maker]]:
    plan = []
    for shape in shapes(cls, version):
        if shape.inner is None:
            make = _primitive(shape.name, shape.kind)
        else:
            make = _own_entity(shape.inner, version)
        if shape.is_array:
            make = _several(make)
        if shape.is_nullable:
            make = _perhaps(make, 0.25)
        plan.append((shape.name, make))
    return plan


def _own_entity(cls: Any, version: int) -> Maker:
    return lambda corpus: corpus.own(cls, version)


def _entity(cls: type) -> Maker:
    return lambda corpus: corpus.value(cls)


def _several(make: Maker) -> Maker:
    def several(corpus: Corpus) -> tuple[Any, ...]:
        count = corpus.random.choice((1, 1, 1, 1, 2, 2, 0, 3))
        return tuple([make(corpus) for _ in range(count)])

    return several


def _perhaps(make: Maker, null_share: float) -> Maker:
    return lambda corpus: None if corpus.random.random() < null_share else make(corpus)


def _primitive(name: str, kafka_type: str) -> Maker:
    if kafka_type in _INT_BITS:
        bits = _INT_BITS[kafka_type]
        if kafka_type.startswith("u"):
            return lambda corpus: abs(corpus.number(name, bits))
        return lambda corpus: corpus.number(name, bits)
    if kafka_type == "string":
        if name == "name":
            return lambda corpus: corpus.name()
        return lambda corpus: corpus.text(name)
    if kafka_type in ("bytes", "records"):
        return lambda corpus: corpus.data(name)
    if kafka_type == "bool":
        return lambda corpus: corpus.random.random() < 0.3
    if kafka_type == "uuid":
        return lambda corpus: corpus.topic_id()
    if kafka_type == "float64":
        return lambda corpus: corpus.random.choice((0.0, 1.5, float("nan"), float("inf")))
    if kafka_type.startswith("timedelta"):
        return _timedelta(name)
    if kafka_type == "datetime_i64":
        return lambda corpus: (
            _EPOCH
            + datetime.timedelta(
                milliseconds=corpus.random.choice((0, 1_600_000_000_000, 1_900_000_000_000))
            )
        )
    if kafka_type == "error_code":
        from oncelog.core.errors import ErrorCode

        return lambda _corpus: ErrorCode.none
    raise TypeError(f"{name}: {kafka_type}")


def _timedelta(name: str) -> Maker:
    choices: tuple[int, ...] = (0, 1, 50, WAIT_MS_MAX)
    if name in ("session_timeout", "rebalance_timeout", "transaction_timeout"):
        choices = (*(300_000, 1_000_000) * 4, 6_000, 45_000, 0, -1, 2**31 - 1)
    return lambda corpus: datetime.timedelta(milliseconds=corpus.random.choice(choices))
