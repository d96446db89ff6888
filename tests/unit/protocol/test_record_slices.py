"""Records as slices say what the records themselves say, and a thinned batch is a sound one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import check_crc, read_header, set_log_append_time
from oncelog.protocol.record import Record, build_batch, iter_records
from oncelog.protocol.record_slices import (
    RecordSlice,
    delete_horizon_ms,
    emptied_batch,
    iter_slices,
    thinned_batch,
    unpacked,
)

NOW_MS = 1_700_000_000_000
some_bytes = st.one_of(st.none(), st.binary(max_size=200))
some_records = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=3), some_bytes), max_size=2),
    ),
    min_size=1,
    max_size=8,
)
codecs = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


def made(fields: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]):  # type: ignore[no-untyped-def]
    return [
        Record(7 + i, NOW_MS + time, k, v, tuple(h)) for i, (time, k, v, h) in enumerate(fields)
    ]


def slices_of(data: bytearray) -> tuple[bytes, list[RecordSlice]]:
    header = read_header(data)
    body = unpacked(data, 0, header)
    return body, list(iter_slices(body, header))


@given(some_records, codecs)
def test_slices_tell_offset_key_and_whether_there_is_a_value(fields, codec: str) -> None:  # type: ignore[no-untyped-def]
    records = made(fields)
    data = build_batch(records, base_offset=7, codec=codec)
    _, slices = slices_of(data)
    assert [(s.offset, s.key, s.has_value) for s in slices] == [
        (r.offset, r.key, r.value is not None) for r in records
    ]


@given(some_records, codecs, st.sets(st.integers(0, 7)), st.sampled_from([None, NOW_MS + 10**9, 5]))
def test_a_thinned_batch_holds_the_same_records_without_the_others(  # type: ignore[no-untyped-def]
    fields, codec: str, wanted: set[int], horizon_ms: int | None
) -> None:
    records = made(fields)
    data = build_batch(
        records,
        base_offset=7,
        codec=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        transactional=True,
        leader_epoch=3,
    )
    before = read_header(data)
    body, slices = slices_of(data)
    kept = [s for i, s in enumerate(slices) if i in wanted] or slices[:1]
    thin = thinned_batch(before, body, kept, horizon_ms)
    header = read_header(thin)
    assert check_crc(thin, 0, header)
    offsets = {s.offset for s in kept}
    assert list(iter_records(thin, 0, header)) == [r for r in records if r.offset in offsets]
    assert delete_horizon_ms(header) == horizon_ms
    assert header.max_timestamp == max(r.timestamp for r in records if r.offset in offsets)
    same = ("base_offset", "last_offset", "last_sequence", "producer_id", "producer_epoch")
    for name in (*same, "leader_epoch", "base_sequence", "codec", "is_transactional"):
        assert getattr(header, name) == getattr(before, name)


def test_a_thinned_batch_with_the_time_of_the_log_keeps_it() -> None:
    data = build_batch([Record(0, NOW_MS, b"a", b"1"), Record(0, NOW_MS + 9, b"b", b"1")])
    set_log_append_time(data, 0, read_header(data), NOW_MS + 50)
    body, slices = slices_of(data)
    thin = thinned_batch(read_header(data), body, slices[:1], NOW_MS + 1000)
    header = read_header(thin)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS + 50, 1)
    assert [record.timestamp for record in iter_records(thin, 0, header)] == [NOW_MS + 50]


def test_an_emptied_batch_tells_its_offsets_and_sequences() -> None:
    records = [Record(0, NOW_MS + i, b"a", None) for i in range(3)]
    data = build_batch(
        records, base_offset=4, codec="zstd", producer_id=5, producer_epoch=2, base_sequence=8
    )
    body, slices = slices_of(data)
    with_horizon = thinned_batch(read_header(data), body, slices, NOW_MS)
    empty = emptied_batch(read_header(with_horizon))
    header = read_header(empty)
    assert check_crc(empty, 0, header)
    assert list(iter_records(empty, 0, header)) == []
    assert (header.length, header.record_count, header.codec) == (61, 0, "none")
    assert (header.base_offset, header.last_offset, header.last_sequence) == (4, 6, 10)
    assert (header.max_timestamp, delete_horizon_ms(header)) == (NOW_MS + 2, None)


@pytest.mark.parametrize("cut", range(1, 40))
def test_records_that_are_none_are_damage(cut: int) -> None:
    data = build_batch([Record(0, NOW_MS, b"key" * 3, b"value" * 4, [("h", b"x")])])
    header = read_header(data)
    body = unpacked(data, 0, header)
    with pytest.raises(ProtocolError) as refused:
        list(iter_slices(body[:-cut], header))
    assert refused.value.code is ErrorCode.corrupt_message


@given(st.binary(max_size=60))
def test_any_bytes_are_records_or_damage(body: bytes) -> None:
    header = read_header(build_batch([Record(0, 0, b"", b"")] * 3))
    try:
        list(iter_slices(body, header))
    except ProtocolError as error:
        assert error.code is ErrorCode.corrupt_message  # noqa: PT017 - or it is none
