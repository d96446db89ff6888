"""What clusters refuse, as one sentence that says what to do."""

import pytest

from oncelog.client.errors import ClientError, ConnectionLostError, FatalError
from oncelog.core.errors import ErrorCode
from oncelog.spark.driver_options import DriverOptions
from oncelog.spark.errors import UnsupportedModeError, UsageError
from oncelog.spark.preflight import explained
from oncelog.spark.sink_options import SinkOptions

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
