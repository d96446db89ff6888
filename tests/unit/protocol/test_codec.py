"""The readers and writers of all messages, judged by kio's and by bytes written before."""

import io
import json
import traceback
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import MESSAGE_ELEMENTS_COUNT_MAX, STRING_BYTES_MAX
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey, is_flexible
from oncelog.protocol.codec import (
    MisfitError,
    reader,
    request_class,
    response_class,
    writer,
)
from oncelog.protocol.codec_reader import ReaderSource
from oncelog.protocol.codec_writer import WriterSource
from oncelog.protocol.messages.create_topics import CreatableTopicResult
from oncelog.protocol.messages.describe_configs import DescribeConfigsResponse
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.wire import Buffer, uvarint
from tests.support.examples import examples
from tests.unit.protocol.judge import (
    CASES,
    HAND_WRITTEN,
    JUDGED,
    JUDGED_NAMES,
    NAMES,
    kio_class,
    plain_of_kio,
    plain_of_ours,
)
from tests.unit.protocol.samples import sample

VALUES_COUNT = 50
VALUES_COUNT_FULL = 2000
"""Random values of each message, direction and version: in `make test`, and in `make test-full`."""

GOLDEN = json.loads((Path(__file__).parent / "golden/messages.json").read_text())


def class_of(api: ApiKey, kind: str) -> type:
    return request_class(api) if kind == "request" else response_class(api)


def written(cls: type, version: int, value: Any, *, flexible: bool) -> bytes:
    out = bytearray()
    writer(cls, version, flexible=flexible)(out, value)
    return bytes(out)


def read(cls: type, version: int, raw: Buffer, position: int = 0, *, flexible: bool = True) -> Any:
    return reader(cls, version, flexible=flexible)(raw, position)


def check_against_kio(api: ApiKey, version: int, count: int) -> None:
    flexible = is_flexible(api, version)
    for kind in ("request", "response"):
        cls, schema = class_of(api, kind), kio_class(api, version, kind)
        random = Random(f"{api.name} {kind} {version}")
        for _ in range(count):
            value = sample(cls, version, random)
            raw = written(cls, version, value, flexible=flexible)
            assert read(cls, version, raw, flexible=flexible) == value
            judged, size = entity_reader(schema)(raw, 0)
            assert size == len(raw)
            assert plain_of_kio(judged) == plain_of_ours(value, version)
            out = io.BytesIO()
            entity_writer(schema)(out, judged)
            assert out.getvalue() == raw


@pytest.mark.parametrize(("api", "version"), JUDGED, ids=JUDGED_NAMES)
def test_kio_writes_the_same_bytes_and_reads_the_same_values(api: ApiKey, version: int) -> None:
    check_against_kio(api, version, examples(VALUES_COUNT))


@pytest.mark.soak
@pytest.mark.parametrize(("api", "version"), JUDGED, ids=JUDGED_NAMES)
def test_kio_agrees_on_many_values(api: ApiKey, version: int) -> None:
    check_against_kio(api, version, VALUES_COUNT_FULL)


@pytest.mark.parametrize(("api", "version"), CASES, ids=NAMES)
def test_bytes_of_an_earlier_build_are_read_and_written_again(api: ApiKey, version: int) -> None:
    flexible = is_flexible(api, version)
    for kind in ("request", "response"):
        cls = class_of(api, kind)
        golden = GOLDEN[api.schema_name][kind][str(version)]
        assert golden
        for text in golden:
            frame = bytearray(b"in front" + b64decode(text) + b"behind")
            value = read(cls, version, frame, 8, flexible=flexible)
            assert written(cls, version, value, flexible=flexible) == b64decode(text)
            frame.append(0)  # Nothing that was read looks into the frame any more.


@pytest.mark.parametrize(
    "api", [ApiKey(api) for api in ADVERTISED if api not in HAND_WRITTEN], ids=lambda api: api.name
)
def test_a_message_cut_anywhere_is_refused(api: ApiKey) -> None:
    for version in ADVERTISED[api]:
        flexible = is_flexible(api, version)
        for kind in ("request", "response"):
            cls = class_of(api, kind)
            random = Random(f"{api.name} {kind} {version}")
            raw = min(
                (
                    written(cls, version, sample(cls, version, random), flexible=flexible)
                    for _ in range(5)
                ),
                key=len,
            )
            sizes = range(len(raw))
            for size in sizes if len(raw) < 100 else random.sample(sizes, 100):
                with pytest.raises(ProtocolError) as caught:
                    read(cls, version, raw[:size], flexible=flexible)
                assert caught.value.code is ErrorCode.invalid_request


def test_the_example_in_the_docstring_is_what_is_generated() -> None:
    example = codec.__doc__ or ""
    sources = (
        ReaderSource(EndTxnRequest, 5, flexible=True).source,
        WriterSource(EndTxnRequest, 5, flexible=True).source,
    )
    for source in sources:
        indented = "".join(f"    {line}\n" for line in source.text.splitlines())
        assert indented in example


def test_a_traceback_shows_the_generated_lines() -> None:
    with pytest.raises(ProtocolError) as caught:
        read(EndTxnRequest, 5, b"\x02x")
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<reader of EndTxnRequest v5>"' in shown
    assert "producer_id, producer_epoch, committed, tags = unpack_qhoB(buffer, position)" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": "g" * (STRING_BYTES_MAX + 1)},
        {"group_id": None},
        {"group_id": "\ud800"},
        {"generation_id": 2**31},
        {"generation_id": -(2**31) - 1},
        {"generation_id": None},
        {"generation_id": "3"},
    ],
    ids=["too long", "null", "no UTF-8", "too large", "too small", "no number", "text"],
)
def test_a_value_that_does_not_fit_its_field_is_our_bug(wrong: dict[str, Any]) -> None:
    fields = {"group_id": "g", "generation_id": 3, "member_id": "m", **wrong}
    with pytest.raises(MisfitError, match="HeartbeatRequest"):
        written(HeartbeatRequest, 0, HeartbeatRequest(**fields), flexible=False)


def test_an_array_that_is_null_or_has_no_only_element_is_our_bug() -> None:
    null: Any = None
    with pytest.raises(MisfitError):
        written(
            FindCoordinatorRequest,
            4,
            FindCoordinatorRequest(coordinator_keys=null),
            flexible=True,
        )
    with pytest.raises(MisfitError):
        written(FindCoordinatorRequest, 3, FindCoordinatorRequest(), flexible=True)


def test_null_where_the_schema_allows_none_is_refused_by_readers() -> None:
    for raw, cls, version in (
        (b"\x00" + bytes(12), EndTxnRequest, 5),
        (b"\xff\xff" + bytes(6), HeartbeatRequest, 0),
        (b"\x00\x00\x00", FindCoordinatorRequest, 4),
    ):
        with pytest.raises(ProtocolError):
            read(cls, version, raw, flexible=version > 0)


def test_a_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read(HeartbeatRequest, 0, b"\xff\xfe" + bytes(8), flexible=False)


def test_a_compact_string_is_no_longer_than_any_other() -> None:
    for size, fits in ((STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)):
        raw = uvarint(size + 1) + b"x" * size + bytes(12)
        if fits:
            assert len(read(EndTxnRequest, 5, raw).transactional_id) == size
        else:
            with pytest.raises(ProtocolError):
                read(EndTxnRequest, 5, raw)


def test_the_elements_of_all_arrays_of_a_message_share_one_bound() -> None:
    def frame(*counts: int) -> bytes:
        config = b"\x02k\x01\x00\x05\x00\x01\x02\x01\x00"
        head = b"\x00\x00\x01\x02\x02t"
        results = [head + uvarint(count + 1) + config * count + b"\x00" for count in counts]
        return bytes(4) + uvarint(len(results) + 1) + b"".join(results) + b"\x00"

    made = ReaderSource(DescribeConfigsResponse, 4, flexible=True, elements_count_max=10)
    bounded = made.source.compiled("read", "reader with a small bound")
    assert [len(result.configs) for result in bounded(frame(3, 5), 0).results] == [3, 5]
    for counts in ((3, 6), (10,), (0,) * 11):
        with pytest.raises(ProtocolError, match="more than 10"):
            bounded(frame(*counts), 0)


def test_no_reader_goes_beyond_the_bound_of_elements() -> None:
    limit = f"budget = {MESSAGE_ELEMENTS_COUNT_MAX}"
    assert limit in ReaderSource(FindCoordinatorRequest, 4, flexible=True).source.text


def test_a_nullable_struct_follows_a_byte_that_tells_of_it_kip_893() -> None:
    cls = DescribeTopicPartitionsRequest
    assert read(cls, 0, b"\x01\x00\x00\x00\x05\xff\x00").cursor is None
    found = read(cls, 0, b"\x01\x00\x00\x00\x05\x01\x02t\x00\x00\x00\x07\x00\x00").cursor
    assert (found.topic_name, found.partition_index) == ("t", 7)


def test_known_tagged_fields_are_read_and_unknown_ones_skipped() -> None:
    value = sample(CreatableTopicResult, 5, Random(1))
    absent = replace(value, topic_config_error_code=ErrorCode.none)
    plain = written(CreatableTopicResult, 5, absent, flexible=True)
    assert plain[-1:] == b"\x00"

    def code(tags: bytes) -> int:
        found: int = read(CreatableTopicResult, 5, plain[:-1] + tags).topic_config_error_code
        return found

    assert code(b"\x00") == 0
    assert code(b"\x01\x00\x02\x00\x1d") == 29
    assert code(b"\x03\x00\x02\x00\x1d\x05\x01x\x07\x00") == 29
    assert code(b"\x02\x00\x02\x00\x1d\x00\x02\x00\x07") == 7  # The last one holds.
    for size in (b"\x01", b"\x03"):
        with pytest.raises(ProtocolError, match="topic_config_error_code"):
            code(b"\x01\x00" + size + b"\x00\x1d\x00")


def test_errors_and_topic_ids_are_what_the_rest_of_the_code_compares_with() -> None:
    known = read(EndTxnResponse, 3, bytes(4) + b"\x00\x33" + b"\x00")
    assert known.error_code is ErrorCode.concurrent_transactions
    newer = read(EndTxnResponse, 3, bytes(4) + b"\x70\x00" + b"\x00")
    assert newer.error_code is ErrorCode.unknown_server_error
    raw = b"\x02" + bytes(16) + b"\x02t\x00" + b"\x01\x00\x00"
    assert read(MetadataRequest, 12, raw).topics[0].topic_id is None
