"""A walk over records finds what making values of them finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.batch import HEADER_SIZE, BatchHeader, read_header
from oncelog.protocol.record import Record, build_batch, iter_records
from oncelog.protocol.record_walk import Times, Walked, walk_records

NOW_MS = 1_700_000_000_000


def split(records: list[Record], **options: bool) -> tuple[bytes, BatchHeader]:
    """The bytes of the records in a batch, and its header."""
    batch = build_batch(records, **options)  # type: ignore[arg-type]
    return bytes(batch[HEADER_SIZE:]), read_header(batch)


RECORDS = st.builds(
    Record,
    st.just(0),
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3),
)


@given(st.lists(RECORDS, min_size=1, max_size=80), st.integers(0, 2**41), st.integers(0, 2**41))
def test_what_is_found_is_what_the_records_say(
    records: list[Record], earliest_ms: int, latest_ms: int
) -> None:
    data, header = split(records)
    found = walk_records(data, header, Times(earliest_ms, latest_ms))
    times = [record.timestamp for record in records]
    assert found.max_timestamp_ms == max(-1, *times)
    assert found.keyless == [n for n, record in enumerate(records) if record.key is None]
    assert found.untimely == [
        n for n, time in enumerate(times) if time != -1 and not earliest_ms <= time <= latest_ms
    ]
    assert found.misplaced == []


@given(
    st.lists(RECORDS, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(-1, 1),
)
def test_damage_is_refused_by_both_or_by_none(
    records: list[Record], damage: list[tuple[int, int]], more: int
) -> None:
    data, header = split(records)
    changed = bytearray(data)
    for position, value in damage:
        changed[position % len(changed)] = value
    header = header._replace(record_count=header.record_count + more)
    batch = bytes(HEADER_SIZE) + bytes(changed)
    header = header._replace(length=len(batch))
    try:
        list(iter_records(batch, 0, header))
    except ProtocolError as error:
        if "utf-8" in error.message:
            return  # The name of a header is no text: only readers mind, in Kafka too.
        with pytest.raises(ProtocolError) as raised:
            walk_records(bytes(changed), header)
        assert raised.value.code is ErrorCode.invalid_record
    else:
        walk_records(bytes(changed), header)


@pytest.mark.parametrize("more", [-1, 1, 2**31 - 1])
def test_a_count_that_is_not_that_of_the_records_is_invalid(more: int) -> None:
    data, header = split([Record(0, NOW_MS, b"k", b"v")] * 3)
    count = min(header.record_count + more, 2**31 - 1)
    with pytest.raises(ProtocolError) as raised:
        walk_records(data, header._replace(record_count=count))
    assert raised.value.code is ErrorCode.invalid_record


def test_offsets_that_are_not_consecutive_are_named() -> None:
    records = [Record(offset, NOW_MS, b"k", b"v") for offset in (0, 2, 3, 3)]
    data, header = split(records, keep_offsets=True)
    assert walk_records(data, header) == Walked(NOW_MS, [], [], [1, 2])


def test_a_timestamp_beyond_64_bits_is_never_timely() -> None:
    data, header = split([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 5, b"k", b"v")])
    assert walk_records(data, header._replace(base_timestamp=INT64_MAX)).untimely == [1]
