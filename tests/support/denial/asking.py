"""Both brokers with an authorizer: for each set of rights a user that has it, and things to name.

Rights never change while questions are asked, so no answer depends on when a broker obeys.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import encode_fetch_request, parse_fetch_response
from oncelog.protocol.produce import encode_produce_request, parse_produce_response
from oncelog.sync import Admin
from tests.support.access import CONFIG, right
from tests.support.broker import BrokerProcess
from tests.support.denial.questions import (
    GROUP,
    LIVE_GROUP,
    QUESTIONS,
    SEEN,
    TRANSACTION,
    Question,
    Rights,
)
from tests.support.peer.child import BrokerChild, free_port
from tests.support.peer.kafka import KafkaPeer
from tests.support.raw_client import RawClient
from tests.unit.broker.access.asking import ID_OF, UNKNOWN_ID
from tests.unit.broker.access.fact import part

__all__ = ["CLOSED", "Side", "sides"]

CLOSED: Final = "the connection is closed"
_PASSWORD: Final = "geheim"
_WAIT_S: Final = 30
_LONG_MS: Final = 600_000
_REFUSED: Final = ErrorCode.topic_authorization_failed
_USERS: Final[Mapping[Rights, str]] = {
    rights: f"u{number}"
    for number, rights in enumerate(
        dict.fromkeys(rights for question in QUESTIONS for rights in question.rights)
    )
}
_SETTINGS: Final = {
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="{_PASSWORD}"' for user in _USERS.values())
        + ";"
    ),
    **{key: CONFIG[key] for key in ("authorizer.class.name", "super.users")},
    "group.initial.rebalance.delay.ms": "0",
    # The records that are written are years old, and each broker looks for such in its own time.
    "log.retention.ms": "-1",
    "group.consumer.max.session.timeout.ms": str(_LONG_MS),
    "group.consumer.session.timeout.ms": str(_LONG_MS),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Side:
    """One of the two brokers."""

    def __init__(self, broker: BrokerChild, login_port: int) -> None:
        self.super = RawClient(broker.bootstrap_servers)
        """Of a user that may do everything."""
        self._login = f"127.0.0.1:{login_port}"
        self._clients: dict[str, RawClient] = {}
        self._ids: dict[UUID, UUID] = {}
        self._made: dict[UUID, str] = {}

    # ---- questions ----

    def ask(self, question: Question, version: int, rights: Rights) -> Any:
        """The answer of the user with these rights, as `plain` has it."""
        user = _USERS[rights]
        if user not in self._clients:
            self._clients[user] = RawClient(self._login, user, _PASSWORD)
        body = _with_ids(question.body, self._ids)
        try:
            answer = _exchanged(self._clients[user], question.api, version, body)
        except ConnectionError:
            self._clients.pop(user).close()
            return CLOSED
        self._wait_for_changes(question, answer)
        return self.plain(answer)

    def plain(self, node: Any) -> Any:
        """An answer of maps and lists, with topics' names in place of their ids."""
        if is_dataclass(node):
            return {each.name: self.plain(getattr(node, each.name)) for each in fields(node)}
        if isinstance(node, tuple) and hasattr(node, "_fields"):
            return {name: self.plain(getattr(node, name)) for name in node._fields}
        if isinstance(node, list | tuple):
            return [self.plain(each) for each in node]
        if isinstance(node, UUID):
            return self._made.get(node, "another id")
        if isinstance(node, memoryview | bytearray):
            return bytes(node)
        return node.name if isinstance(node, ErrorCode) else node

    def versions(self) -> dict[int, range]:
        """Of each API that it serves."""
        asked = codec.request_class(ApiKey.API_VERSIONS)(
            client_software_name="test", client_software_version="1"
        )
        told = self.super.ask(ApiKey.API_VERSIONS, 3, asked)
        return {
            each.api_key: range(each.min_version, each.max_version + 1) for each in told.api_keys
        }

    # ---- what is there ----

    def restore(self) -> None:
        """Have the topics a and b as they were, and none that questions make."""

        def is_so() -> bool:
            topics = {topic.name: topic for topic in self._topics() if not topic.is_internal}
            wrong = [
                name
                for name, topic in topics.items()
                if name not in (*ID_OF, *SEEN) or len(topic.partitions) != 2
            ]
            missing = {*ID_OF, *SEEN} - topics.keys()
            if wrong:
                named = tuple(part(ApiKey.DELETE_TOPICS, "DeleteTopicState", name=n) for n in wrong)
                self._ask(ApiKey.DELETE_TOPICS, topics=named, timeout_ms=10_000)
            elif missing:
                self._create(missing)
            else:
                self._made = {topic.topic_id: name for name, topic in topics.items()}
                self._made |= {UNKNOWN_ID: "an id that no topic has"}
                self._ids = {wanted: topics[name].topic_id for name, wanted in ID_OF.items()}
            return not wrong and not missing and all(map(_is_led, topics.values()))

        _until(is_so)

    def prepare(self) -> None:
        """Give the users their rights, and make the group, its member and the transaction."""
        acls = {
            right(text, user=user) for rights, user in _USERS.items() for text in sorted(rights)
        }
        with Admin(self.super.address) as admin:
            admin.create_acls(acls)
            _until(lambda: len(admin.describe_acls()) == len(acls))
        self.restore()
        for kind, name in ((0, GROUP), (1, TRANSACTION)):
            _until(lambda kind=kind, name=name: self._is_coordinated(kind, name))
        topics = tuple(
            part(
                ApiKey.OFFSET_COMMIT,
                "OffsetCommitRequestTopic",
                name=name,
                partitions=(part(ApiKey.OFFSET_COMMIT, "OffsetCommitRequestPartition"),),
            )
            for name in SEEN
        )
        _until(
            lambda: _is_fine(
                self._ask(ApiKey.OFFSET_COMMIT, 8, group_id=GROUP, topics=topics)
                .topics[0]
                .partitions[0]
            )
        )
        self._join()
        self._begin()

    def close(self) -> None:
        for client in (self.super, *self._clients.values()):
            client.close()

    def _ask(self, api: ApiKey, version: int | None = None, /, **asked: Any) -> Any:
        cls = codec.request_class(api)
        newest = self.versions()[api][-1] if version is None else version
        return self.super.ask(api, newest, cls(**asked))

    def _topics(self) -> Any:
        return self._ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False).topics

    def _create(self, names: Iterable[str]) -> None:
        new = tuple(
            part(
                ApiKey.CREATE_TOPICS,
                "CreatableTopic",
                name=name,
                num_partitions=2,
                replication_factor=1,
            )
            for name in names
        )
        self._ask(ApiKey.CREATE_TOPICS, topics=new, timeout_ms=10_000)

    def _wait_for_changes(self, question: Question, answer: Any) -> None:
        """Wait for topics that Apache Kafka makes and deletes after it has answered."""
        api, wanted = question.api, set()
        if api is ApiKey.METADATA:
            named = {topic.name for topic in question.body.topics or ()} & {"new"}
            refusals = {topic.name for topic in answer.topics if topic.error_code is _REFUSED}
            wanted = named - refusals
        elif api is ApiKey.CREATE_TOPICS and not question.body.validate_only:
            wanted = {topic.name for topic in answer.topics if _is_fine(topic)}
        elif api is ApiKey.DELETE_TOPICS:
            gone = {topic.name for topic in answer.responses if _is_fine(topic)}
            _until(lambda: gone.isdisjoint(topic.name for topic in self._topics()))
        _until(lambda: wanted <= {topic.name for topic in self._topics()})

    def _is_coordinated(self, kind: int, name: str) -> bool:
        asked = {"key_type": kind, "coordinator_keys": (name,)}
        return _is_fine(self._ask(ApiKey.FIND_COORDINATOR, **asked).coordinators[0])

    def _join(self) -> None:
        """Have a member of the group of consumers own both topics."""
        member = str(UUID(int=1))
        joining = {"rebalance_timeout_ms": 60_000, "topic_partitions": ()}
        joining["subscribed_topic_names"] = SEEN
        api, epoch = ApiKey.CONSUMER_GROUP_HEARTBEAT, 0

        def owns() -> bool:
            nonlocal epoch
            more = joining if epoch == 0 else {}
            told = self._ask(
                api, 1, group_id=LIVE_GROUP, member_id=member, member_epoch=epoch, **more
            )
            epoch = told.member_epoch if _is_fine(told) else epoch
            return told.assignment is not None and len(told.assignment.topic_partitions) == 2

        _until(owns)
        owned = tuple(
            part(api, "ConsumerGroupHeartbeatTopicPartitions", topic_id=each, partitions=(0, 1))
            for each, name in self._made.items()
            if name in SEEN
        )
        told = {"group_id": LIVE_GROUP, "member_id": member, "topic_partitions": owned}
        assert _is_fine(self._ask(api, 1, member_epoch=epoch, **told))

    def _begin(self) -> None:
        """Begin the transaction."""
        asked = {"transactional_id": TRANSACTION, "transaction_timeout_ms": _LONG_MS}
        made: Any = None

        def is_made() -> bool:
            nonlocal made
            made = self._ask(ApiKey.INIT_PRODUCER_ID, 4, **asked)
            return _is_fine(made)

        _until(is_made)
        api = ApiKey.ADD_PARTITIONS_TO_TXN
        topics = tuple(
            part(api, "AddPartitionsToTxnTopic", name=name, partitions=(0,)) for name in SEEN
        )
        wanted = part(
            api,
            "AddPartitionsToTxnTransaction",
            transactional_id=TRANSACTION,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            topics=topics,
        )
        self._ask(api, 3, transactions=(wanted,))


@contextmanager
def sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Oncelog and Apache Kafka. Raises `PeerUnavailable`."""
    ours, kafka = BrokerProcess(folder / "ours"), KafkaPeer(folder / "kafka")
    kafka.jvm = ("-Xmx384M", "-Xms384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    ports = {ours: free_port(), kafka: free_port()}
    ours.settings = _settings(ours.port, ports[ours])
    kafka.settings = _settings(kafka.port, ports[kafka], kafka.voters[kafka.node_id])
    with ExitStack() as stack:
        made = []
        for broker in (ours, kafka):
            stack.enter_context(broker)
            side = Side(broker, ports[broker])
            stack.callback(side.close)
            side.prepare()
            made.append(side)
        yield made[0], made[1]


def _settings(port: int, login_port: int, controller_port: int = 0) -> dict[str, str]:
    clients = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{login_port}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    found = {**_SETTINGS, "listeners": clients, "advertised.listeners": clients}
    if controller_port:
        found["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        protocols += ",CONTROLLER:PLAINTEXT"
    return found | {"listener.security.protocol.map": protocols}


def _exchanged(client: RawClient, api: ApiKey, version: int, body: Any) -> Any:
    """The response to a request; those of records have codecs of their own."""
    if api is ApiKey.PRODUCE:
        frame = b"".join(encode_produce_request(version, 1, "test", **body._asdict()))
        parse: Any = parse_produce_response
    elif api is ApiKey.FETCH:
        frame, parse = encode_fetch_request(version, 1, "test", body), parse_fetch_response
    else:
        return client.ask(api, version, body)
    answer = client.exchange(frame)
    _, offset = codec.parse_response_header(api, version, answer)
    return parse(answer, version, offset)


def _with_ids(node: Any, ids: Mapping[UUID, UUID]) -> Any:
    """A request with a broker's own ids of topics."""
    if is_dataclass(node) and not isinstance(node, type):
        named = {each.name: _with_ids(getattr(node, each.name), ids) for each in fields(node)}
        return type(node)(**named)
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return type(node)(*(_with_ids(each, ids) for each in node))
    if isinstance(node, list | tuple):
        return type(node)(_with_ids(each, ids) for each in node)
    return ids.get(node, node) if isinstance(node, UUID) else node


def _is_fine(told: Any) -> bool:
    return bool(told.error_code is ErrorCode.none)


def _is_led(topic: Any) -> bool:
    return all(partition.leader_id >= 0 for partition in topic.partitions)


def _until(condition: Any) -> None:
    end_s = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it has not come so far"
        time.sleep(0.01)
