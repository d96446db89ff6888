"""Each stumble of a client's first minutes is answered with one sentence, which has our word."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import oncelog
from oncelog import Admin, Consumer, EmbeddedBroker, NewTopic, Producer, TopicPartition, sync
from oncelog.client import (
    AbortableError,
    ConnectionLostError,
    FatalError,
    IllegalStateError,
    TransactionDriver,
)
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import ErrorCode
from oncelog.runtime.clock import Clock
from oncelog.runtime.network import ProtocolFactory
from tests.unit.client.scripted_broker import ScriptedBroker
from tests.unit.client.test_connecting import LateNetwork

ZERO = TopicPartition("t", 0)
INTERNAL = ("Cluster", "Blocking", "Reader", "Hints", "Session", "Connector", "__init__")


class LeapingClock(Clock):
    """Time passes only in sleeps, and at once."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic_ms(self) -> float:
        return self.ms

    async def sleep(self, duration_ms: float) -> None:
        self.ms += duration_ms
        await asyncio.sleep(0)


def sentence(make: Callable[[], object], *kinds: type[BaseException]) -> str:
    """What is raised: one sentence without the name of an internal class."""
    with pytest.raises(kinds or (TypeError, ConfigError, ValueError)) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert not any(name in text for name in INTERNAL)
    return text


# --- addresses ------------------------------------------------------------------------


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, sync.Producer, sync.Consumer])
def test_a_dict_in_place_of_an_address_is_told_where_it_goes(client: Any) -> None:
    given = {"bootstrap.servers": "localhost:9092", "sasl.password": "geheim"}
    text = sentence(lambda: client(given))
    assert text.startswith("the address comes first and Kafka's settings second, not one dict")
    assert "geheim" not in text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "the address must be a str, as localhost:9092, not None"),
        (9092, "the address must be a str, as localhost:9092, not int"),
        (b"localhost:9092", "the address must be a str, as localhost:9092, not bytes"),
        ([("localhost", 9092)], "an address must be a str, as localhost:9092, not tuple"),
        (EmbeddedBroker(), "the address must be a str, as its bootstrap_servers, not Embed"),
        ("kafka://h:1", "bootstrap server 'kafka://h:1' is not host:port: drop kafka://"),
        ("h:99999", "bootstrap server 'h:99999' is not host:port"),
    ],
)
def test_what_is_no_address_is_told_what_one_looks_like(given: Any, told: str) -> None:
    assert sentence(lambda: Producer(given)).startswith(told)


def test_a_client_without_an_address_asks_for_one() -> None:
    client: Any = Consumer
    assert sentence(client) == 'Consumer needs an address, as in "localhost:9092"'


def test_addresses_may_be_a_list_by_either_name() -> None:
    named: Any = {"bootstrap.servers": ["a:1", "b:2"]}
    for client in (Producer(["a:1", "b:2"]), Producer(**named)):
        assert client._cluster._bootstrap == [("a", 1), ("b", 2)]


def test_topics_in_a_consumers_arguments_are_told_where_they_go() -> None:
    client: Any = Consumer
    text = "Consumer takes no topics: give them to subscribe([...]) or assign([...])"
    assert sentence(lambda: client("t", bootstrap_servers="b:1")) == text
    assert sentence(lambda: client("t", "u", bootstrap_servers="b:1")) == text
    assert "takes a dict of settings after the address" in sentence(lambda: client("b:1", "t"))


# --- settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "name", "told"),
    [
        (Producer, "acks_all", "did you mean acks?"),
        (Producer, "lingerMs", "did you mean linger_ms?"),
        (Producer, "linger", "did you mean linger_ms?"),
        (Producer, "compresion_type", "did you mean compression_type?"),
        (Producer, "transactionalid", "did you mean transactional_id?"),
        (Producer, "max_batch_size", "use batch_size"),
        (Producer, "value_serializer", "keys and values are bytes here; encode them yourself"),
        (Producer, "security_protocol", 'TLS and SASL have Kafka\'s names: {"security.protocol"'),
        (Producer, "ssl_truststore_location", 'use {"ssl.truststore.location": ...}'),
        (Producer, "group_id", "it is one of Consumer"),
        (Producer, "queue_buffering_max_ms", "use linger.ms"),
        (Producer, "something_else_entirely", "settings have Kafka's names"),
        (Consumer, "value_deserializer", "decode them yourself"),
        (Consumer, "auto_offset_rest", "did you mean auto_offset_reset?"),
        (Consumer, "groupid", "did you mean group_id?"),
        (Consumer, "fetch_min_bytes", "it has no effect here; leave it out"),
        (Consumer, "default_api_timeout_ms", "use retry_timeout_ms"),
        (Consumer, "consumer_timeout_ms", "use poll(timeout_ms=...)"),
        (Admin, "request_timeout", "did you mean request_timeout_ms?"),
        (Admin, "timeout", "durations are in milliseconds: timeout_ms"),
    ],
)
def test_an_unknown_keyword_is_told_the_right_one(client: Any, name: str, told: str) -> None:
    for made in (client, getattr(sync, client.__name__)):
        text = sentence(partial(made, "b:1", **{name: 1}), TypeError)
        assert text.startswith(f"{client.__name__} has no setting {name}: ")
        assert told in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("queue.buffering.max.ms", "use linger.ms"),
        ("message.timeout.ms", "use delivery.timeout.ms"),
        ("liner.ms", "did you mean linger.ms?"),
        ("enable.idempotance", "did you mean enable.idempotence?"),
    ],
)
def test_librdkafkas_names_and_typos_are_told_ours(name: str, told: str) -> None:
    given: Any = {name: 1}
    text = sentence(lambda: Producer("b:1", given), ConfigError)
    assert text == f"{name} is not a known setting: {told}"


def test_settings_by_kafkas_names_come_after_the_address() -> None:
    producer = Producer("b:1", {"acks": "all", "linger.ms": 5, "client.id": "me"}, batch_size=7)
    assert producer._cluster.client_id == "me"
    chosen = producer._machine.settings
    assert (chosen.linger_ms, chosen.batch_size) == (5, 7)
    TransactionDriver("b:1", "t", {"max.block.ms": 5})
    Admin("b:1", settings={"default.api.timeout.ms": 5})
    twice: Any
    for twice in ({"linger.ms": 5}, {"linger_ms": 5}):
        assert "is given twice" in sentence(partial(Producer, "b:1", twice, linger_ms=5))


# --- methods --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "name", "told"),
    [
        (Producer, "produce", "use send(topic, value, key=key)"),
        (Producer, "send_and_wait", "use send and wait for the future that it returns"),
        (Producer, "poll", "there is nothing to poll; the future that send returns says how"),
        (Producer, "initTransactions", "did you mean init_transactions?"),
        (Producer, "comit_transaction", "did you mean commit_transaction?"),
        (Producer, "stop", "use close"),
        (Consumer, "getone", "use poll(max_records=1), which returns a list"),
        (Consumer, "getmany", "use poll(timeout_ms, max_records), which returns a list"),
        (Consumer, "consume", "use poll(timeout_ms, max_records), which returns a list"),
        (Consumer, "seek_to_beginning", "use seek(partition, 0)"),
        (Consumer, "end_offsets", 'use Admin.list_offsets({partition: "latest"})'),
        (Consumer, "subscribed", "did you mean subscribe?"),
        (Admin, "list_consumer_groups", "use list_groups()"),
        (Admin, "create_topic", "did you mean create_topics?"),
    ],
)
def test_other_clients_methods_are_told_ours(client: Any, name: str, told: str) -> None:
    made = client("b:1")
    text = sentence(lambda: getattr(made, name), AttributeError)
    assert text.startswith(f"{client.__name__} has no {name}: ")
    assert told in text
    assert not hasattr(made, "_no_such_thing")
    blocking = getattr(sync, client.__name__)("b:1")
    assert sentence(lambda: getattr(blocking, name), AttributeError) == text
    blocking.close()


@pytest.mark.parametrize("name", ["AIOKafkaProducer", "KafkaConsumer", "AdminClient"])
def test_other_clients_classes_are_told_ours(name: str) -> None:
    with pytest.raises(ImportError, match=f"oncelog has no {name}: use oncelog."):
        getattr(oncelog, name)


async def test_an_asyncio_client_says_how_it_is_entered_and_read() -> None:
    client: Any = Consumer("b:1")
    with pytest.raises(TypeError, match=r"Consumer needs `async with`; `with` is for "), client:
        pass
    for read in (iter, aiter):
        with pytest.raises(TypeError, match="poll returns lists"):
            read(client)


# --- sync -----------------------------------------------------------------------------


def test_sync_can_be_imported_in_each_way() -> None:
    script = "import oncelog.sync; from oncelog import sync; print(oncelog.sync.Producer, sync)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "oncelog.client.sync.Producer" in run.stdout


def test_a_sync_client_in_a_coroutine_is_refused() -> None:
    client = sync.Consumer("b:1")
    client.assign([ZERO])

    def helper() -> None:
        client.poll()

    async def wrong() -> None:
        helper()

    async def as_callback() -> list[str]:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def call() -> None:
            told.set_result(sentence(client.poll, RuntimeError))

        asyncio.get_running_loop().call_soon(call)
        return [await told]

    text = (
        "sync.Consumer would block the event loop of this coroutine: use oncelog.Consumer and "
        "await its methods"
    )
    assert sentence(lambda: asyncio.run(wrong()), RuntimeError) == text
    assert asyncio.run(as_callback()) == [text]
    asyncio.run(_close_in_coroutine(client))


async def _close_in_coroutine(client: Any) -> None:
    client.close()


def test_a_cell_of_a_notebook_may_use_a_sync_client() -> None:
    """Its loop runs the cell, which is no coroutine of the user."""
    cell = compile("told = is_in_coroutine()", "<cell>", "exec")
    found: dict[str, Any] = {}

    async def kernel() -> None:
        from oncelog.client.hints import is_in_coroutine

        found["is_in_coroutine"] = is_in_coroutine
        exec(cell, found)

    asyncio.run(kernel())
    assert found["told"] is False


# --- the first connection -------------------------------------------------------------


async def test_a_first_connection_that_is_refused_fails_within_seconds() -> None:
    broker = ScriptedBroker()
    kinds: list[tuple[Any, str]] = [
        (Producer, "start"),
        (Consumer, "start"),
        (Consumer, "poll"),
        (Admin, "list_topics"),
    ]
    for make, method in kinds:
        clock, network = LeapingClock(), LateNetwork(broker, refusals=1_000_000)
        client: Any = make("wrong:1", **{**broker.options(), "network": network}, clock=clock)
        if make is Consumer:
            client.assign([ZERO])
        with pytest.raises(ConnectionLostError, match="no broker answers: wrong:1") as caught:
            await getattr(client, method)()
        assert "is the address right? first_contact_ms waits longer" in str(caught.value)
        assert 4_000 < clock.ms < 7_000
        await client.close()


class UnresolvedNetwork(LateNetwork):
    """Knows no names."""

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_a_name_that_does_not_resolve_fails_within_seconds() -> None:
    clock, network = LeapingClock(), UnresolvedNetwork(ScriptedBroker(), refusals=0)
    with pytest.raises(ConnectionLostError, match=r"wrong:1: .*Name or service not known; is the"):
        await Producer("wrong:1", network=network, clock=clock).start()
    assert clock.ms < 7_000


async def test_who_waits_for_a_broker_says_for_how_long() -> None:
    broker = ScriptedBroker()
    for given, waited_ms in ((60_000, 60_000), (None, 30_000)):
        clock, network = LeapingClock(), LateNetwork(broker, refusals=1_000_000)
        options = {**broker.options(), "network": network, "clock": clock, "timeout_ms": 30_000}
        admin = Admin("b:1", first_contact_ms=given, **options)
        with pytest.raises(ConnectionLostError):
            await admin.start()
        assert abs(clock.ms - waited_ms) < 2_000
    late = LateNetwork(broker, refusals=20)
    options = {**broker.options(), "network": late, "clock": LeapingClock()}
    async with Admin("b:1", first_contact_ms=60_000, **options) as admin:
        await admin.describe_topic("t")


async def test_a_broker_that_restarts_later_is_waited_for_as_before() -> None:
    broker = ScriptedBroker()
    clock, network = LeapingClock(), LateNetwork(broker, refusals=0)
    options = {**broker.options(), "network": network, "clock": clock}
    async with Admin("b:1", timeout_ms=60_000, **options) as admin:
        network.refusals = 1_000_000
        for transport in network.transports:
            transport.cut()
        with pytest.raises(ConnectionLostError):
            await admin.list_topics()
        assert clock.ms > 55_000
        network.refusals = 0
        await admin.list_topics()


# --- closed, unassigned, unknown ------------------------------------------------------


async def test_a_closed_or_unassigned_consumer_says_so() -> None:
    broker = ScriptedBroker()
    consumer = Consumer("b:1", group_id="g", enable_auto_commit=False, **broker.options())
    with pytest.raises(IllegalStateError) as caught:
        await consumer.poll()
    assert str(caught.value) == "nothing is read: call subscribe or assign before poll"
    consumer.assign([ZERO])
    await consumer.close()
    calls: list[Any] = [consumer.poll, consumer.positions, consumer.committed, consumer.start]
    for call in calls:
        with pytest.raises(IllegalStateError, match="is closed: make another one"):
            await call()
    with pytest.raises(IllegalStateError, match="the consumer is closed"):
        consumer.assign([ZERO])
    with pytest.raises(IllegalStateError, match="the consumer is closed"):
        consumer.subscribe(["t"])
    admin = Admin("b:1", **broker.options())
    await admin.close()
    with pytest.raises(IllegalStateError, match="the client is closed: make another one"):
        await admin.list_topics()


@pytest.mark.parametrize(
    ("partition", "told"),
    [
        (TopicPartition("gone", 0), "topic gone does not exist"),
        (TopicPartition("t", 7), "topic t has the partitions 0 to 1, not 7"),
    ],
)
async def test_reading_what_does_not_exist_fails_with_its_name(
    partition: TopicPartition, told: str
) -> None:
    broker = ScriptedBroker()
    broker.missing = [{"gone"}]
    clock = LeapingClock()
    options = {**broker.options(), "clock": clock, "retry_backoff_max_ms": 1_000}
    async with Consumer("b:1", **options) as consumer:
        consumer.assign([partition])
        with pytest.raises(FatalError) as caught:
            await consumer.poll(60_000)
        assert caught.value.message == told
        assert caught.value.code is ErrorCode.unknown_topic_or_partition
        assert clock.ms < 15_000
        with pytest.raises(FatalError, match=told):
            await consumer.position(partition)
        with pytest.raises(FatalError, match=told):
            await consumer.fetch_batches(partition, 0)
        assert clock.ms < 50_000
    async with Admin("b:1", **options) as admin:
        with pytest.raises(FatalError, match=told):
            await admin.list_offsets({partition: "latest"})


async def test_a_topic_that_comes_in_time_is_read() -> None:
    broker = ScriptedBroker()
    broker.missing = [{"t"}] * 20 + [set()]
    async with Consumer("b:1", **broker.options(), clock=LeapingClock()) as consumer:
        consumer.assign([ZERO])
        assert await consumer.position(ZERO) == 0


@pytest.mark.parametrize(
    ("topic", "partition", "told"),
    [
        ("gone", None, "topic gone does not exist"),
        ("gone", 0, "topic gone does not exist"),
        ("t", 7, "topic t has the partitions 0 to 1, not 7"),
    ],
)
async def test_sending_to_what_does_not_exist_fails_with_its_name(
    topic: str, partition: int | None, told: str
) -> None:
    broker = ScriptedBroker()
    broker.missing = [{"gone"}]
    async with Producer("b:1", unknown_topic_ms=20, **broker.options()) as producer:
        with pytest.raises(AbortableError) as caught:
            await producer.send(topic, b"v", partition=partition)
        assert caught.value.message == told
        assert (await producer.send("t", b"v", partition=0)).offset == 0


def test_subscribing_to_what_does_not_exist_fails_with_its_name() -> None:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        servers = broker.bootstrap_servers
        with sync.Consumer(servers, {"group.id": "g"}, unknown_topic_ms=50) as consumer:
            consumer.subscribe(["gone"])
            with pytest.raises(FatalError, match="topic gone does not exist"):
                next(iter(consumer))
            with sync.Admin(servers) as admin:
                admin.create_topics([NewTopic("gone", 1)])
            with sync.Producer(servers) as producer:
                producer.send("gone", b"here").result()
            assert next(iter(consumer)).value == b"here"
