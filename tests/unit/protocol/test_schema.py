"""The generated readers and writers, judged by kio's on values that fit."""

import io
import traceback
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v5.response import CreatableTopicResult
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.end_txn.v3.response import EndTxnResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.heartbeat.v0.request import HeartbeatRequest as OldHeartbeatRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.serial import entity_reader, entity_writer

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.limits import MESSAGE_ELEMENTS_COUNT_MAX, STRING_BYTES_MAX
from oncelog.protocol import schema
from oncelog.protocol.api import ADVERTISED, PRODUCE_VERSION_MIN, ApiKey
from oncelog.protocol.conversion import converter, defaults
from oncelog.protocol.messages import _newest_class, _schema_class
from oncelog.protocol.schema import MisfitError, reader, writer
from oncelog.protocol.schema_reader import ReaderSource
from oncelog.protocol.schema_writer import WriterSource
from oncelog.protocol.wire import uvarint
from tests.support.examples import examples, places
from tests.unit.protocol.samples import sample

ROUNDS = examples(8)
MESSAGES = [(ApiKey(api), kind) for api in ADVERTISED for kind in ("request", "response")]
NAMES = [f"{api.schema_name}-{kind}" for api, kind in MESSAGES]


def versions_of(api: ApiKey) -> range:
    low, high = ADVERTISED[api]
    return range(PRODUCE_VERSION_MIN if api is ApiKey.PRODUCE else low, high + 1)


def tried(api: ApiKey) -> list[int]:
    """All versions, or the oldest alone where the profile is `quick`."""
    versions = versions_of(api)
    return [versions[index] for index in places(len(versions))]


def written(cls: type, value: Any) -> bytes:
    out = bytearray()
    writer(cls)(out, value)
    return bytes(out)


def written_by_kio(cls: Any, value: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(cls)(out, value)
    return out.getvalue()


@pytest.mark.parametrize(("api", "kind"), MESSAGES, ids=NAMES)
def test_writers_write_what_kio_writes_and_readers_read_it_back(api: ApiKey, kind: str) -> None:
    for version in tried(api):
        cls: Any = _schema_class(api, version, kind)
        random = Random(f"{api.name} {kind} {version}")
        for _ in range(ROUNDS):
            value = sample(cls, random)
            raw = written(cls, value)
            assert raw == written_by_kio(cls, value)
            assert reader(cls, cls)(raw, 0) == value
            assert entity_reader(cls)(raw, 0) == (value, len(raw))


@pytest.mark.parametrize(("api", "kind"), MESSAGES, ids=NAMES)
def test_reading_as_the_newest_class_is_reading_and_then_converting(api: ApiKey, kind: str) -> None:
    newest = _newest_class(api, kind)
    for version in tried(api):
        cls = _schema_class(api, version, kind)
        random = Random(f"{api.name} {kind} {version}")
        for _ in range(ROUNDS):
            value = sample(cls, random)
            frame = bytearray(b"in front" + written(cls, value) + b"behind")
            found = reader(cls, newest)(frame, 8)
            assert type(found) is newest
            assert found == converter(cls, newest)(value)  # type: ignore[arg-type]
            frame.append(0)  # Nothing that was read looks into the frame any more.


@pytest.mark.parametrize(("api", "kind"), MESSAGES, ids=NAMES)
def test_a_message_cut_anywhere_is_refused(api: ApiKey, kind: str) -> None:
    for version in (versions_of(api)[0], versions_of(api)[-1]):
        cls = _schema_class(api, version, kind)
        random = Random(f"{api.name} {kind} {version}")
        raw = min((written(cls, sample(cls, random)) for _ in range(5)), key=len)
        sizes = range(len(raw))
        for size in sizes if len(raw) < 100 else random.sample(sizes, 100):
            with pytest.raises(ProtocolError) as caught:
                reader(cls, cls)(raw[:size], 0)
            assert caught.value.code is ErrorCode.invalid_request


def test_the_example_in_the_docstring_is_what_is_generated() -> None:
    example = schema.__doc__ or ""
    sources = ReaderSource(EndTxnRequest, EndTxnRequest).source, WriterSource(EndTxnRequest).source
    for source in sources:
        indented = "".join(f"    {line}\n" for line in source.text.splitlines())
        assert indented in example


def test_a_traceback_shows_the_generated_lines() -> None:
    with pytest.raises(ProtocolError) as caught:
        reader(EndTxnRequest, EndTxnRequest)(b"\x02x", 0)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<reader of end_txn.v3.request.EndTxnRequest>"' in shown
    assert "producer_id, producer_epoch, committed, tags = unpack_qhoB(buffer, position)" in shown


def test_a_writer_takes_any_object_with_the_right_attributes() -> None:
    plain = SimpleNamespace(group_id="g", generation_id=3, member_id="m", more=1)
    fields = {**defaults(HeartbeatRequest), "group_id": "g", "generation_id": 3, "member_id": "m"}
    assert written(OldHeartbeatRequest, plain) == b"\x00\x01g\x00\x00\x00\x03\x00\x01m"
    plain.group_instance_id = None
    assert written(HeartbeatRequest, plain) == written(HeartbeatRequest, HeartbeatRequest(**fields))


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
        written(OldHeartbeatRequest, SimpleNamespace(**fields))


def test_a_missing_attribute_or_array_is_our_bug() -> None:
    with pytest.raises(MisfitError, match="coordinator_keys"):
        written(FindCoordinatorRequest, SimpleNamespace(key_type=0))
    with pytest.raises(MisfitError):
        written(FindCoordinatorRequest, SimpleNamespace(key_type=0, coordinator_keys=None))


def test_null_where_the_schema_allows_none_is_refused_by_readers() -> None:
    for raw, cls in (
        (b"\x00" + bytes(12), EndTxnRequest),
        (b"\xff\xff" + bytes(6), OldHeartbeatRequest),
        (b"\x00\x00\x00", FindCoordinatorRequest),
    ):
        with pytest.raises(ProtocolError):
            reader(cls, cls)(raw, 0)


def test_a_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(ProtocolError):
        reader(OldHeartbeatRequest, OldHeartbeatRequest)(b"\xff\xfe" + bytes(8), 0)


def test_a_compact_string_is_no_longer_than_any_other() -> None:
    for size, fits in ((STRING_BYTES_MAX, True), (STRING_BYTES_MAX + 1, False)):
        raw = uvarint(size + 1) + b"x" * size + bytes(12)
        if fits:
            assert len(reader(EndTxnRequest, EndTxnRequest)(raw, 0).transactional_id) == size
        else:
            with pytest.raises(ProtocolError):
                reader(EndTxnRequest, EndTxnRequest)(raw, 0)


def test_the_elements_of_all_arrays_of_a_message_share_one_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def frame(*counts: int) -> bytes:
        config = b"\x02k\x01\x00\x05\x00\x01\x02\x01\x00"
        head = b"\x00\x00\x01\x02\x02t"
        results = [head + uvarint(count + 1) + config * count + b"\x00" for count in counts]
        return bytes(4) + uvarint(len(results) + 1) + b"".join(results) + b"\x00"

    monkeypatch.setattr("oncelog.protocol.schema_reader.MESSAGE_ELEMENTS_COUNT_MAX", 10)
    source = ReaderSource(DescribeConfigsResponse, DescribeConfigsResponse).source
    read = source.compiled("read", "reader with a small bound")
    assert [len(result.configs) for result in read(frame(3, 5), 0).results] == [3, 5]
    for counts in ((3, 6), (10,), (0,) * 11):
        with pytest.raises(ProtocolError, match="more than 10"):
            read(frame(*counts), 0)


def test_no_reader_goes_beyond_the_bound_of_elements() -> None:
    limit = f"budget = {MESSAGE_ELEMENTS_COUNT_MAX}"
    assert limit in ReaderSource(FindCoordinatorRequest, FindCoordinatorRequest).source.text


def test_a_nullable_struct_follows_a_byte_that_tells_of_it_kip_893() -> None:
    read = reader(DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequest)
    assert read(b"\x01\x00\x00\x00\x05\xff\x00", 0).cursor is None
    found = read(b"\x01\x00\x00\x00\x05\x01\x02t\x00\x00\x00\x07\x00\x00", 0).cursor
    assert (found.topic_name, found.partition_index) == ("t", 7)


def test_known_tagged_fields_are_read_and_unknown_ones_skipped() -> None:
    value = sample(CreatableTopicResult, Random(1))
    fields = {name: getattr(value, name) for name in defaults(CreatableTopicResult)}
    absent = CreatableTopicResult(**{**fields, "topic_config_error_code": 0})
    plain = written(CreatableTopicResult, absent)
    assert plain[-1:] == b"\x00"

    def read(tags: bytes) -> int:
        found = reader(CreatableTopicResult, CreatableTopicResult)(plain[:-1] + tags, 0)
        code: int = found.topic_config_error_code
        return code

    assert read(b"\x00") == 0
    assert read(b"\x01\x00\x02\x00\x1d") == 29
    assert read(b"\x03\x00\x02\x00\x1d\x05\x01x\x07\x00") == 29
    assert read(b"\x02\x00\x02\x00\x1d\x00\x02\x00\x07") == 7  # The last one holds.
    for size in (b"\x01", b"\x03"):
        with pytest.raises(ProtocolError, match="topic_config_error_code"):
            read(b"\x01\x00" + size + b"\x00\x1d\x00")


def test_errors_and_topic_ids_are_what_the_rest_of_the_code_compares_with() -> None:
    read = reader(EndTxnResponse, EndTxnResponse)
    assert read(bytes(4) + b"\x00\x33" + b"\x00", 0).error_code is (
        ErrorCode.concurrent_transactions
    )
    assert read(bytes(4) + b"\x70\x00" + b"\x00", 0).error_code is ErrorCode.unknown_server_error
    raw = b"\x02" + bytes(16) + b"\x02t\x00" + b"\x01\x00\x00"
    topic = reader(MetadataRequest, MetadataRequest)(raw, 0).topics[0]
    assert topic.topic_id is None
