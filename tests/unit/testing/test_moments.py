"""The steps of a transaction are found in what is written, and in nothing else."""

import pytest

from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from oncelog.protocol.record import Record, build_batch, control_batch
from oncelog.protocol.records.transaction_log import (
    TransactionLogValue,
    encode_key,
    encode_value,
)
from oncelog.testing import Moment
from oncelog.testing.moments import TransactionWrite, TransactionWriteKind, steps_of_write

LOG = "/data/__transaction_state-0/00000000000000000000.log"


def status(*numbers: int) -> bytes:
    """One write of the transaction log, with a record for each status."""
    values = [TransactionLogValue(7, 0, 60_000, number, (("t", (0,)),), 1, 1) for number in numbers]
    records = [
        Record(at, 1, encode_key("me"), encode_value(value), ()) for at, value in enumerate(values)
    ]
    return bytes(build_batch(records))


@pytest.mark.parametrize(
    ("numbers", "kinds"),
    [
        ((0,), []),
        ((1,), []),
        ((2,), [TransactionWriteKind.PREPARE]),
        ((3,), [TransactionWriteKind.PREPARE]),
        ((4,), [TransactionWriteKind.COMPLETE]),
        ((3, 5), [TransactionWriteKind.PREPARE, TransactionWriteKind.COMPLETE]),
    ],
)
def test_prepare_and_complete_are_found_by_their_status(
    numbers: tuple[int, ...], kinds: list[TransactionWriteKind]
) -> None:
    assert list(steps_of_write(LOG, status(*numbers))) == [
        TransactionWrite(kind, 7, "me", TopicPartition(TRANSACTION_STATE_TOPIC, 0))
        for kind in kinds
    ]


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS_TOPIC])
def test_a_marker_is_found_in_any_partition(topic: str) -> None:
    marker = bytes(control_batch(True, 7, 0, 0, 1))
    path = f"/data/{topic}-3/00000000000000000000.log"
    assert list(steps_of_write(path, marker)) == [
        TransactionWrite(TransactionWriteKind.MARKER, 7, None, TopicPartition(topic, 3))
    ]


def test_records_tombstones_and_other_files_are_no_steps() -> None:
    plain = bytes(build_batch([Record(0, 1, b"k", b"v", ())]))
    assert list(steps_of_write("/data/t-0/00000000000000000000.log", plain)) == []
    forgotten = bytes(build_batch([Record(0, 1, encode_key("me"), None, ())]))
    assert list(steps_of_write(LOG, forgotten)) == []
    assert list(steps_of_write(LOG.replace(".log", ".index"), b"\x00" * 8)) == []


def test_moments_name_the_write_and_its_side() -> None:
    assert (Moment.BEFORE_PREPARE.step, Moment.BEFORE_PREPARE.is_before) == (
        TransactionWriteKind.PREPARE,
        True,
    )
    assert (Moment.BETWEEN_MARKERS.step, Moment.BETWEEN_MARKERS.is_before) == (
        TransactionWriteKind.MARKER,
        False,
    )
