"""How rows are spelled for COPY."""

import datetime
from decimal import Decimal

import pyarrow as pa

from oncelog.spark.jdbc.copying import as_csv


def test_a_null_and_an_empty_string_differ() -> None:
    batch = pa.record_batch([pa.array(["", None, 'a"b,\nc'])], names=["c"])
    assert as_csv(batch, 1, 2) == b'1,2,""\n1,2,\n1,2,"a""b,\nc"\n'


def test_moments_are_in_utc_whatever_the_sessions_zone() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    column = pa.array([moment], pa.timestamp("us", "Asia/Tokyo"))
    assert as_csv(pa.record_batch([column], names=["c"]), 1, 2) == (
        b"1,2,2026-01-01 00:00:00.000000Z\n"
    )


def test_decimals_keep_their_digits() -> None:
    column = pa.array([Decimal("-0.0000000001")], pa.decimal128(38, 10))
    line = as_csv(pa.record_batch([column], names=["c"]), 1, 2).decode().strip()
    assert Decimal(line.split(",")[2]) == Decimal("-1E-10")
