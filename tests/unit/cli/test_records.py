"""Records as text, both ways."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.records import (
    Columns,
    InputRecord,
    RecordError,
    compile_template,
    for_terminal,
    format_columns,
    format_json,
    parse_json,
    parse_raw,
    unescape,
)
from oncelog.client import ConsumerRecord
from oncelog.protocol.record import header_name


def record(**given: object) -> ConsumerRecord:
    fields = {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp_ms": 1_700_000_000_123,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "headers": (("h", b"1"), ("i", None)),
    }
    return ConsumerRecord(**(fields | given))  # type: ignore[arg-type]


def test_columns_stand_in_the_order_of_kafkas_console_consumer() -> None:
    everything = Columns(True, True, True, True, True)
    before, value = format_columns(everything, record())
    assert before == b"CreateTime:1700000000123\tPartition:1\tOffset:7\th:1,i:null\tk\t"
    assert value == b"v"
    bare = record(key=None, value=None, headers=(), timestamp_type=1)
    before, value = format_columns(everything, bare)
    assert before == b"LogAppendTime:1700000000123\tPartition:1\tOffset:7\tNO_HEADERS\tnull\t"
    assert value == b"null"


def test_a_template_names_fields_and_keeps_the_rest() -> None:
    line = compile_template(r"{topic}/{partition}@{offset}\t{{{key}}} {time}=é{value}")
    assert line(record()) == "t/1@7\t{k} 2023-11-14T22:13:20.123Z=év".encode()


@pytest.mark.parametrize(
    ("text", "reason"), [("{foo}", "no field {foo}"), ("{key", "a single {"), ("}", "a single }")]
)
def test_a_template_that_means_nothing_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("{", r"\{").replace("}", r"\}")):
        compile_template(text)


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (253_402_300_799_999, b"9999-12-31T23:59:59.999Z"),
        (253_402_300_799_001, b"9999-12-31T23:59:59.001Z"),
        (-1, b"1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_far_away_is_shown_to_the_millisecond(timestamp_ms: int, text: bytes) -> None:
    assert compile_template("{time}")(record(timestamp_ms=timestamp_ms)) == text


def test_an_impossible_time_is_shown_as_its_number() -> None:
    assert compile_template("{time}")(record(timestamp_ms=2**62)) == str(2**62).encode()


def test_what_would_command_a_terminal_is_shown_instead() -> None:
    assert for_terminal(b"a\x1b[31m\xff\ttab") == "a\\x1b[31m\\xff\ttab"
    assert for_terminal("dvě\nřádky".encode()) == "dvě\nřádky"


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")),
    headers=st.lists(st.tuples(st.binary().map(header_name), st.none() | st.binary())),
)
def test_what_is_printed_as_json_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = format_json(record(key=key, value=value, headers=tuple(headers)))
    assert b"\n" not in line
    assert parse_json(line) == InputRecord(key, value, tuple(headers), 1, 1_700_000_000_123)


def test_a_value_that_is_json_itself_becomes_its_text() -> None:
    assert parse_json(b'{"value": {"a": [1, 2]}}').value == b'{"a":[1,2]}'
    assert parse_json(b'{"value": null, "headers": {"h": "x"}}') == InputRecord(
        None, None, (("h", b"x"),)
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", 'no "value"'),
        (b'{"value": {"base64": "!"}}', "base64"),
        (b'{"value": {"base64": 1}}', "base64"),
        (b'{"value": "", "headers": 3}', "headers"),
        (b'{"value": "", "headers": [["a"]]}', "headers"),
        (b'{"value": "", "partition": "1"}', "partition"),
        (b'{"value": "", "partition": true}', "partition"),
        (b'{"value": "", "timestamp": 1.5}', "timestamp"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        parse_json(line)


def test_a_raw_line_is_split_at_its_first_separator() -> None:
    assert parse_raw(b"a=b=c", b"=", None) == InputRecord(b"a", b"b=c")
    assert parse_raw(b"=b", b"=", None) == InputRecord(b"", b"b")
    assert parse_raw(b"a=b", None, None) == InputRecord(None, b"a=b")
    assert parse_raw(b"a=NULL", b"=", b"NULL") == InputRecord(b"a", None)
    with pytest.raises(RecordError, match="no key separator"):
        parse_raw(b"ab", b"=", None)


def test_escapes_are_read_as_python_reads_them() -> None:
    assert unescape(r"\t→\x1f\u20ac") == "\t→\x1f€"
    assert unescape("plain→") == "plain→"
    with pytest.raises(ValueError, match="backslash"):
        unescape("\\x")


def test_json_keeps_text_readable() -> None:
    assert json.loads(format_json(record(value="dvě".encode())))["value"] == "dvě"
    assert "dvě".encode() in format_json(record(value="dvě".encode()))
