"""What clusters refuse, as one sentence that says what to do."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog.client.admin import Admin
from oncelog.client.errors import ClientError, ConnectionLostError, FatalError, RetriableError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark import preflight
from oncelog.spark.errors import UnsupportedModeError, UsageError
from oncelog.spark.marker import opening
from oncelog.spark.preflight import check_carrier, explained
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.sink_options import MARKER_TOPIC, SinkOptions
from tests.support.logged import said_by

OPTIONS = SinkOptions(
    bootstrap_servers="host:9092",
    protocol=ProtocolOptions("app"),
    topic="t",
    topics=None,
    max_tasks=None,
    batch_size=1,
    compression_type="none",
    transaction_timeout_ms=1_000_000,
    progress_path=None,
)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ConnectionLostError("refused"), UsageError, "at host:9092 does not answer"),
        (
            RetriableError(ErrorCode.leader_not_available, "out-1"),
            UsageError,
            "a partition stays away .LEADER_NOT_AVAILABLE: out-1.: nothing of the batch is visible",
        ),
        (TimeoutError(), UsageError, "check bootstrap_servers"),
        (
            FatalError(ErrorCode.unsupported_version, "no version of INIT_PRODUCER_ID"),
            UnsupportedModeError,
            "no version of INIT_PRODUCER_ID",
        ),
        (
            FatalError(ErrorCode.invalid_transaction_timeout),
            UsageError,
            r"transaction_timeout_ms=1000000 is above .* transaction\.max\.timeout\.ms",
        ),
        (
            FatalError(ErrorCode.transactional_id_authorization_failed),
            UsageError,
            "grant Write and Describe on it",
        ),
        (FatalError(ErrorCode.group_authorization_failed), UsageError, "grant Read on it"),
        (
            RetriableError(ErrorCode.unstable_offset_commit, "group app"),
            UsageError,
            r"group 'app' are still undecided \(UNSTABLE_OFFSET_COMMIT.* find-hanging",
        ),
        (FatalError(ErrorCode.topic_authorization_failed, "t"), UsageError, r"topic \(t\)"),
    ],
)
def test_what_a_cluster_refuses_is_a_sentence_that_says_what_to_do(
    error: Exception, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as raised:
        raise explained(error, OPTIONS)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1000


def test_other_errors_stay_what_they_are() -> None:
    error: ClientError = FatalError(ErrorCode.unknown_server_error, "?")
    assert explained(error, OPTIONS) is error


class MarkerTopic:
    """The marker topic, with one value for all applications."""

    def __init__(self, value: bytes | None, error: ClientError | None = None) -> None:
        self.value = value
        self.error = error

    async def committed_value(
        self,
        topic_partition: TopicPartition,
        key: bytes,
        *,
        is_final: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> bytes | None:
        if self.error is not None:
            raise self.error
        return self.value if topic_partition.topic == MARKER_TOPIC and key == b"app" else None


def test_an_application_that_has_used_the_marker_topic_may_not_leave_the_marker_to_its_group() -> (
    None
):
    used = MarkerTopic(opening("q").encode().encode())
    with pytest.raises(UsageError, match="leave marker_topic=None out"):
        asyncio.run(check_carrier(used, [MARKER_TOPIC], OPTIONS))
    place = TopicPartition(MARKER_TOPIC, 0)
    with_topic = replace(OPTIONS, protocol=replace(OPTIONS.protocol, marker_partition=place))
    asyncio.run(check_carrier(used, [MARKER_TOPIC], with_topic))


@pytest.mark.parametrize(
    "unused",
    [MarkerTopic(None), MarkerTopic(None, FatalError(ErrorCode.topic_authorization_failed))],
)
def test_an_application_that_never_used_the_marker_topic_may_do_without_it(
    unused: MarkerTopic,
) -> None:
    asyncio.run(check_carrier(unused, [MARKER_TOPIC], OPTIONS))
    asyncio.run(check_carrier(unused, [], OPTIONS))


class LongMarkerTopic:
    """A cluster whose marker topic takes a minute to read: an admin, and a transaction."""

    brings_records = True
    configs: Mapping[str, str] = {"cleanup.policy": "compact", "segment.bytes": "1073741824"}
    may_create = True

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def start(self) -> None:
        """Nothing is connected."""

    async def close(self) -> None:
        """Nothing is open."""

    async def describe_cluster(self) -> SimpleNamespace:
        return SimpleNamespace(cluster_id="c")

    async def list_topics(self) -> dict[str, None]:
        return {"t": None, MARKER_TOPIC: None} if self.may_create else {"t": None}

    async def create_topics(self, _topics: object) -> None:
        raise FatalError(ErrorCode.topic_authorization_failed)

    async def describe_configs(self, topics: list[str]) -> dict[str, dict[str, SimpleNamespace]]:
        entries = {name: SimpleNamespace(value=value) for name, value in self.configs.items()}
        return dict.fromkeys(topics, entries)

    async def fetch_offsets(self, *_: object, **__: object) -> dict[TopicPartition, Any]:
        return {}

    async def committed_value(
        self, *_: object, on_progress: Callable[[], None], **__: object
    ) -> bytes:
        loop: Any = asyncio.get_running_loop()
        now_s = loop.time()
        for _step in range(20):
            now_s += 3
            loop.time = lambda now_s=now_s: now_s
            await asyncio.sleep(0)
            if self.brings_records:
                on_progress()
        return opening("q").encode().encode()


@pytest.fixture
def long_topic(monkeypatch: pytest.MonkeyPatch) -> type[LongMarkerTopic]:
    class Long(LongMarkerTopic):
        pass

    monkeypatch.setattr(preflight, "Admin", Long)
    monkeypatch.setattr(preflight, "TransactionDriver", Long)
    return Long


def examine() -> str | None:
    place = TopicPartition(MARKER_TOPIC, 0)
    options = replace(OPTIONS, protocol=replace(OPTIONS.protocol, marker_partition=place))
    return asyncio.run(preflight._examine(options, [], "q", is_query_known=True))


def test_a_long_marker_topic_is_read_while_records_arrive(
    long_topic: type[LongMarkerTopic], caplog: pytest.LogCaptureFixture
) -> None:
    assert examine() == "c"
    assert "segment.bytes=1073741824" in caplog.text
    long_topic.configs = preflight.MARKER_TOPIC_CONFIGS
    caplog.clear()
    assert examine() == "c"
    assert said_by(caplog) == []
    long_topic.brings_records = False
    with pytest.raises(UsageError, match="does not answer"):
        examine()


def test_who_creates_the_marker_topic_by_hand_is_told_all_of_its_settings(
    long_topic: type[LongMarkerTopic],
) -> None:
    long_topic.may_create = False
    with pytest.raises(UsageError, match=r"cleanup\.policy=compact, segment\.bytes=4194304, min"):
        examine()


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[str, str]]:
    """The addresses of two clusters."""
    with oncelog.EmbeddedBroker() as sink, oncelog.EmbeddedBroker() as other:
        yield sink.bootstrap_servers, other.bootstrap_servers


def check_source(sink: str, source: Mapping[str, str], commits_offsets: bool = True) -> None:
    """Ask the sink's cluster for its id, and check one source with these settings of Kafka's."""
    protocol = replace(OPTIONS.protocol, commit_source_offsets=commits_offsets)
    options = replace(OPTIONS, bootstrap_servers=sink, protocol=protocol)

    async def check() -> None:
        async with Admin(sink) as admin:
            cluster_id = (await admin.describe_cluster()).cluster_id
        await preflight._check_sources(options, [source], cluster_id)

    asyncio.run(check())


def test_a_source_is_compared_whatever_timeout_it_has(clusters: tuple[str, str]) -> None:
    sink, other = clusters
    given = {"default.api.timeout.ms": "60000", "max.poll.records": "5", "not.known.here": "1"}
    check_source(sink, {"bootstrap.servers": sink.replace("127.0.0.1", "localhost"), **given})
    with pytest.raises(UsageError, match=r"a source reads from cluster .* and the sink writes to"):
        check_source(sink, {"bootstrap.servers": other, **given})


def test_a_source_that_does_not_answer_is_refused_unless_its_offsets_stay_out(
    clusters: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "SOURCE_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for peer in (silent, closed):
            servers = f"127.0.0.1:{peer.getsockname()[1]}"
            with pytest.raises(UsageError, match="commit_source_offsets=False") as refused:
                check_source(clusters[0], {"bootstrap.servers": servers})
            assert f"the source at {servers} " in str(refused.value)
            assert len(str(refused.value)) < 1000
            check_source(clusters[0], {"bootstrap.servers": servers}, commits_offsets=False)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "STORE"}, "only Java reads"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM"),
        ({"request.timeout.ms": "soon"}, r"request\.timeout\.ms"),
    ],
)
def test_a_source_that_only_java_can_connect_to_is_refused_unless_its_address_is_the_sinks(
    clusters: tuple[str, str], tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    sink, other = clusters
    store = tmp_path / "store.jks"
    store.write_bytes(struct.pack(">I", 0xFEEDFEED) + bytes(20))
    given = {name: value.replace("STORE", str(store)) for name, value in settings.items()}
    with pytest.raises(UsageError, match=reason) as refused:
        check_source(sink, {"bootstrap.servers": other, **given})
    assert "pass commit_source_offsets=False" in str(refused.value)
    check_source(sink, {"bootstrap.servers": sink, **given})


def test_an_error_of_ours_is_not_taken_for_a_source_that_does_not_answer(
    clusters: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise TypeError("ours")

    monkeypatch.setattr(Admin, "start", broken)
    with pytest.raises(TypeError, match="ours"):
        asyncio.run(preflight._check_sources(OPTIONS, [{"bootstrap.servers": clusters[1]}], "c"))
