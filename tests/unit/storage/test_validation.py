"""A leader looks at records only where a compacted topic needs their keys."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import renew_crc
from oncelog.protocol.record import Record, build_batch
from oncelog.storage.config import LogConfig
from oncelog.storage.producer_state import Origin
from oncelog.storage.validation import check_batches

NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def batch(*keys: bytes | None, codec: str = "none") -> bytearray:
    records = [Record(n, NOW_MS, key, b"value", ()) for n, key in enumerate(keys)]
    return build_batch(records, codec=codec)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_refuses_a_record_without_a_key(codec: str) -> None:
    checked = check_batches(batch(b"a", None, codec=codec), COMPACTED, Origin.CLIENT, NOW_MS)
    assert checked.error is ErrorCode.invalid_record
    assert "record 1" in (checked.message or "")


def test_a_compacted_topic_takes_records_with_keys() -> None:
    checked = check_batches(batch(b"a", b""), COMPACTED, Origin.CLIENT, NOW_MS)
    assert checked.error is ErrorCode.none


def test_other_topics_do_not_look_at_keys() -> None:
    checked = check_batches(batch(None), LogConfig(), Origin.CLIENT, NOW_MS)
    assert checked.error is ErrorCode.none


def test_records_that_are_none_are_corrupt_in_a_compacted_topic() -> None:
    damaged = batch(b"a", b"b", codec="zstd")
    damaged[70:] = bytes(len(damaged) - 70)
    renew_crc(damaged, 0, len(damaged))
    checked = check_batches(damaged, COMPACTED, Origin.CLIENT, NOW_MS)
    assert checked.error is ErrorCode.corrupt_message
