"""What clusters refuse, as one sentence that says what to do."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.client.errors import ClientError, ConnectionLostError, FatalError
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.driver_options import DriverOptions
from oncelog.spark.errors import UnsupportedModeError, UsageError
from oncelog.spark.marker import opening
from oncelog.spark.preflight import check_carrier, explained
from oncelog.spark.sink_options import MARKER_TOPIC, SinkOptions

OPTIONS = SinkOptions(
    bootstrap_servers="host:9092",
    driver=DriverOptions("app"),
    topic="t",
    topics=None,
    max_tasks=None,
    batch_size=1,
    compression_type="none",
    transaction_timeout_ms=1_000_000,
    progress_path=None,
    crash_point=None,
)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ConnectionLostError("refused"), UsageError, "at host:9092 does not answer"),
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
        self, topic_partition: TopicPartition, key: bytes, *, is_final: bool = True
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
    with_topic = replace(OPTIONS, driver=replace(OPTIONS.driver, marker_partition=place))
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
