"""Which types go together: what might round, wrap or be read differently is refused."""

import pytest
from pyspark.sql import types as T  # noqa: N812

from oncelog.spark.errors import UsageError
from oncelog.spark.jdbc.types import TargetColumn, check_pair, suggested_type


def field(text: str) -> T.StructField:
    schema = T._parse_datatype_string(f"c {text}")
    assert isinstance(schema, T.StructType)
    return schema.fields[0]


FITTING = [
    (T.LongType(), "bigint"),
    (T.ShortType(), "integer"),
    (T.LongType(), "numeric(20,0)"),
    (T.DecimalType(10, 2), "numeric"),
    (T.DecimalType(10, 2), "numeric(12,4)"),
    (T.DecimalType(10, 0), "numeric(12)"),
    (T.StringType(), "character varying(20)"),
    (T.StringType(), "jsonb"),
    (T.StringType(), "mood"),
    (T.TimestampType(), "timestamp with time zone"),
    (T.TimestampType(), "timestamp(6) with time zone"),
    (T.ArrayType(T.IntegerType()), "bigint[]"),
    (T.ArrayType(T.ArrayType(T.IntegerType())), "jsonb"),
    (T.MapType(T.StringType(), T.LongType()), "json"),
]
REFUSED = [
    (T.LongType(), "integer"),
    (T.LongType(), "double precision"),
    (T.DoubleType(), "real"),
    (T.DecimalType(10, 4), "numeric(12,2)"),
    (T.LongType(), "numeric(3,-2)"),
    (T.StringType(), "integer"),
    (T.StringType(), "text[]"),
    (T.TimestampType(), "timestamp without time zone"),
    (T.TimestampNTZType(), "timestamp with time zone"),
    (T.TimestampType(), "timestamp(3) with time zone"),
    (T.ArrayType(T.ArrayType(T.IntegerType())), "integer[]"),
    (T.ArrayType(T.LongType()), "integer[]"),
    (T.BinaryType(), "text"),
]


@pytest.mark.parametrize(("kind", "type_name"), FITTING)
def test_a_type_that_loses_nothing_fits(kind: T.DataType, type_name: str) -> None:
    check_pair(T.StructField("c", kind), TargetColumn("c", type_name))


@pytest.mark.parametrize(("kind", "type_name"), REFUSED)
def test_a_type_that_may_lose_something_is_refused(kind: T.DataType, type_name: str) -> None:
    with pytest.raises(UsageError, match="make the table's column"):
        check_pair(T.StructField("c", kind), TargetColumn("c", type_name))


def test_a_generated_column_is_refused() -> None:
    with pytest.raises(UsageError, match="generated"):
        check_pair(T.StructField("c", T.LongType()), TargetColumn("c", "bigint", is_generated=True))


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [
        (T.StringType(), "text"),
        (T.DecimalType(10, 2), "numeric(10,2)"),
        (T.ArrayType(T.TimestampType()), "timestamp with time zone[]"),
        (T.ArrayType(T.StructType([])), "jsonb"),
        (T.TimestampNTZType(), "timestamp without time zone"),
    ],
)
def test_a_new_table_gets_the_type_that_fits(kind: T.DataType, type_name: str) -> None:
    column = T.StructField("c", kind)
    assert suggested_type(column) == type_name
    check_pair(column, TargetColumn("c", type_name))


def test_a_type_without_a_place_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="cast it to string"):
        suggested_type(T.StructField("c", T.DayTimeIntervalType()))
