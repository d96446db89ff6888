"""A customer's balance after each order, written once: applyInPandasWithState.

Orders are JSON, {"order": 1, "customer": "ada", "amount": 20, "at": 1700000000}.

    python examples/spark_balances.py 127.0.0.1:9092 /tmp/checkpoints/balances
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from oncelog.spark import OncelogSource, exactly_once, session

OUTPUT_MODE = "append"
ORDER = "order long, customer string, amount long"
BALANCE = "customer string, order long, amount long, balance long"


def pipeline(records: DataFrame) -> DataFrame:
    orders = records.select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
    balances = (
        orders.select("o.*")
        .groupBy("customer")
        .applyInPandasWithState(
            add_up, BALANCE, "balance long", OUTPUT_MODE, GroupStateTimeout.NoTimeout
        )
    )
    value = f.to_json(f.struct("order", "amount", "balance")).alias("value")
    return balances.select(f.col("customer").alias("key"), value)


def add_up(
    key: tuple[Any, ...], batches: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    orders = pd.concat(list(batches)).sort_values("order")
    before = state.get[0] if state.exists else 0
    orders["balance"] = before + orders["amount"].cumsum()
    state.update((int(orders["balance"].iloc[-1]),))
    orders["customer"] = key[0]
    yield orders[["customer", "order", "amount", "balance"]]


def main(servers: str, checkpoint: str) -> None:
    spark = session("balances").getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = {"bootstrapServers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    balances = pipeline(spark.readStream.format("oncelog").options(**options).load())
    writer = exactly_once(
        balances, bootstrap_servers=servers, application_id="balances", topic="balances"
    )
    query = writer.outputMode(OUTPUT_MODE).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
