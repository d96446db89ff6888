"""Describes the target table, and checks that a DataFrame fits it.

Called once, before the query starts: a mismatch is one sentence, and no row was written.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from oncelog.spark.errors import UsageError
from oncelog.spark.jdbc.database import Database, parse_name, quoted, translated
from oncelog.spark.jdbc.types import TargetColumn, as_text, check_pair, suggested_type

__all__ = ["Target", "check_schema", "describe", "projected"]

_RELATION: Final = "SELECT oid, relkind FROM pg_class WHERE oid = to_regclass(%s)"
_COLUMNS: Final = """
SELECT a.attname,
       CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
            ELSE format_type(a.atttypid, a.atttypmod) END,
       NOT (a.attnotnull OR (t.typtype = 'd' AND t.typnotnull)),
       a.atthasdef OR a.attidentity <> '',
       a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE: Final = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class Target:
    """The table, the columns that are written, and the key of an upsert (empty: append)."""

    name: tuple[str, ...]
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()


def describe(
    database: Database, table: str, schema: StructType, key_columns: Iterable[str]
) -> tuple[Target, tuple[TargetColumn, ...]]:
    """Read the table's definition; return its columns and those that are written.

    Raises `UsageError` for a table that is missing or does not fit.
    """
    name = parse_name(table)
    keys = tuple(key_columns)
    with database.connect() as connection, translated():
        relation = connection.execute(_RELATION, (quoted(*name),)).fetchone()
        if relation is None:
            raise UsageError(
                f"table {table} does not exist; create it before the query starts: "
                f"{suggestion(name, schema, keys)}"
            )
        oid, kind = relation
        if kind not in ("r", "p"):
            raise UsageError(f"{table} is no table (a view or a foreign one): name a table")
        columns = [TargetColumn(*row) for row in connection.execute(_COLUMNS, (oid,))]
        unique = [set(row[0]) for row in connection.execute(_UNIQUE, (oid,))]
    check_schema(schema, columns, table)
    _check_keys(schema, columns, keys, unique, table)
    return Target(name, tuple(schema.names), keys), tuple(columns)


def check_schema(schema: StructType, columns: Iterable[TargetColumn], table: str) -> None:
    """Check that every column exists with a fitting type, and no required column is missing."""
    targets = {column.name: column for column in columns}
    if not schema.fields:
        raise UsageError("the DataFrame has no columns")
    for field in schema.fields:
        target = targets.pop(field.name, None)
        if target is None:
            raise UsageError(
                f"table {table} has no column {field.name!r}: drop it before the sink, or ALTER "
                f"TABLE {table} ADD COLUMN {quoted(field.name)} {suggested_type(field)}"
            )
        check_pair(field, target)
    for target in targets.values():
        if not (target.is_nullable or target.has_default or target.is_generated):
            raise UsageError(
                f"column {target.name!r} of table {table} is NOT NULL without a default, and the "
                f"DataFrame has no such column"
            )


def _check_keys(
    schema: StructType,
    columns: Iterable[TargetColumn],
    keys: tuple[str, ...],
    unique: list[set[str]],
    table: str,
) -> None:
    missing = [key for key in keys if key not in schema.names]
    if missing:
        raise UsageError(f"key_columns names {missing[0]!r}, which the DataFrame does not have")
    if keys and set(keys) not in unique:
        listed = ", ".join(quoted(key) for key in keys)
        raise UsageError(
            f"table {table} has no unique index on exactly key_columns {list(keys)}: "
            f"ALTER TABLE {table} ADD PRIMARY KEY ({listed})"
        )
    nullable = [column.name for column in columns if column.name in keys and column.is_nullable]
    if nullable:
        raise UsageError(
            f"key column {nullable[0]!r} of table {table} may be null, and nulls are never equal: "
            f"ALTER TABLE {table} ALTER COLUMN {quoted(nullable[0])} SET NOT NULL"
        )


def suggestion(name: tuple[str, ...], schema: StructType, keys: tuple[str, ...]) -> str:
    """A CREATE TABLE statement for this schema."""
    parts = [f"{quoted(field.name)} {suggested_type(field)}" for field in schema.fields]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(key) for key in keys)})")
    return f"CREATE TABLE {quoted(*name)} ({', '.join(parts)})"


def projected(df: DataFrame, columns: Iterable[TargetColumn]) -> DataFrame:
    """Return the DataFrame with every value in the form in which COPY reads it."""
    targets = {column.name: column for column in columns}
    return df.select(
        *(as_text(field, targets[field.name]).alias(field.name) for field in df.schema.fields)
    )
