"""The queries that crash tests kill, by name: the examples' own, and some that only tests need."""

import importlib.util
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.spark import orders
from tests.spark.orders import Records

EXAMPLES = Path(__file__).parents[2] / "examples"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state"
HDFS_BACKED = f"{STATE}.HDFSBackedStateStoreProvider"
ROCKSDB = f"{STATE}.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class Query:
    """One query: what it computes, and what must be visible of it."""

    build: Callable[..., DataFrame]
    check: Callable[[Records, int], list[str]]
    mode: str = "append"
    provider: str = HDFS_BACKED
    input_suffixes: tuple[str, ...] = ("in",)
    adds_counts: bool = False
    """Whether a second branch sends the counts to a topic of its own."""
    copies_per_order: int = 1
    first_batch: int = 0
    """The first one that has rows to write."""

    def prepare(self, spark: SparkSession) -> None:
        spark.conf.set(PROVIDER, self.provider)


def example(name: str) -> ModuleType:
    path = EXAMPLES / f"spark_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy(records: DataFrame) -> DataFrame:
    return records.select("key", "value")


def scatter(records: DataFrame) -> DataFrame:
    """Nondeterministic: each run sends each record elsewhere, in another order."""
    shuffled = records.repartition(2, f.rand())
    partition = (f.rand() * 2).cast("int").alias("partition")
    rows = shuffled.select("key", "value", partition)
    return rows.mapInPandas(in_another_order, rows.schema)


def in_another_order(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The rows of each frame, shuffled."""
    for frame in frames:
        yield frame.sample(frac=1)


def counts(records: DataFrame) -> DataFrame:
    """How many orders each customer has made."""
    number = f.col("count").cast("string").cast("binary").alias("value")
    return records.groupBy("key").count().select("key", number)


def tokens(records: DataFrame) -> DataFrame:
    """Nondeterministic state: each order leaves a random token for the next one."""
    parsed = records.select(
        f.from_json(f.col("value").cast("string"), "order long, customer string").alias("o")
    )
    chained = (
        parsed.select("o.*")
        .groupBy("customer")
        .applyInPandasWithState(
            chain,
            "customer string, order long, before string, after string",
            "token string",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )
    value = f.to_json(f.struct("order", "before", "after")).alias("value")
    return chained.select(f.col("customer").alias("key"), value)


def chain(
    key: tuple[Any, ...], batches: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    rows = pd.concat(list(batches)).sort_values("order")
    names = [
        state.get[0] if state.exists else "",
        *(secrets.token_hex(4) for _ in range(len(rows))),
    ]
    state.update((names[-1],))
    yield pd.DataFrame(
        {"customer": key[0], "order": rows["order"], "before": names[:-1], "after": names[1:]}
    )


def _lazily(name: str) -> Callable[..., DataFrame]:
    return lambda *streams: example(name).pipeline(*streams)


QUERIES = {
    "copy": Query(copy, orders.check_copies),
    "scatter": Query(scatter, orders.check_each_once),
    "counts": Query(counts, orders.check_counts, mode="update"),
    "union": Query(copy, orders.check_copies, mode="update", adds_counts=True),
    "windows": Query(_lazily("windows"), orders.check_windows, first_batch=1),
    "join": Query(_lazily("join"), orders.check_joined, input_suffixes=("in", "payments")),
    "deduplicate": Query(_lazily("deduplicate"), orders.check_each_once, copies_per_order=2),
    "balances": Query(_lazily("balances"), orders.check_balances),
    "ledger": Query(_lazily("ledger"), orders.check_balances, provider=ROCKSDB),
    "tokens": Query(tokens, orders.check_chain),
    "tokens-rocksdb": Query(tokens, orders.check_chain, provider=ROCKSDB),
}
