"""Whether a DataFrame fits a table."""

import pytest
from pyspark.sql import types as T  # noqa: N812

from oncelog.spark.errors import UsageError
from oncelog.spark.jdbc.target import check_schema, suggestion
from oncelog.spark.jdbc.types import TargetColumn

SCHEMA = T.StructType([T.StructField("id", T.LongType()), T.StructField("Note", T.StringType())])
ID, NOTE = TargetColumn("id", "bigint"), TargetColumn("Note", "text")


def test_a_table_may_have_more_columns_if_they_fill_themselves() -> None:
    more = [
        TargetColumn("a", "text"),
        TargetColumn("b", "text", is_nullable=False, has_default=True),
        TargetColumn("c", "text", is_nullable=False, is_generated=True),
    ]
    check_schema(SCHEMA, [ID, NOTE, *more], "t")


def test_a_column_that_nothing_fills_is_refused() -> None:
    with pytest.raises(UsageError, match="'b' of table t is NOT NULL"):
        check_schema(SCHEMA, [ID, NOTE, TargetColumn("b", "text", is_nullable=False)], "t")


def test_names_are_compared_with_their_capitals() -> None:
    with pytest.raises(UsageError, match='ADD COLUMN "Note" text'):
        check_schema(SCHEMA, [ID, TargetColumn("note", "text")], "t")


def test_the_suggested_table_is_quoted() -> None:
    assert suggestion(("shop", "T"), SCHEMA, ("id",)) == (
        'CREATE TABLE "shop"."T" ("id" bigint, "Note" text, PRIMARY KEY ("id"))'
    )
