"""A customer's balance after each order, written once: transformWithState on RocksDB.

Orders are JSON, {"order": 1, "customer": "ada", "amount": 20, "at": 1700000000}. Needs the
package protobuf.

    python examples/spark_ledger.py 127.0.0.1:9092 /tmp/checkpoints/ledger
"""

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from oncelog.spark import OncelogSource, exactly_once, session

OUTPUT_MODE = "append"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ORDER = "order long, customer string, amount long"
ENTRY = "customer string, order long, amount long, balance long"


class Ledger(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.balance = handle.getValueState("balance", "balance long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        orders = pd.concat(list(rows)).sort_values("order")
        before = self.balance.get()
        orders["balance"] = (before[0] if before else 0) + orders["amount"].cumsum()
        self.balance.update((int(orders["balance"].iloc[-1]),))
        orders["customer"] = key[0]
        yield orders[["customer", "order", "amount", "balance"]]

    def close(self) -> None:
        pass


def pipeline(records: DataFrame) -> DataFrame:
    orders = records.select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
    entries = (
        orders.select("o.*")
        .groupBy("customer")
        .transformWithStateInPandas(Ledger(), ENTRY, OUTPUT_MODE, "None")
    )
    value = f.to_json(f.struct("order", "amount", "balance")).alias("value")
    return entries.select(f.col("customer").alias("key"), value)


def main(servers: str, checkpoint: str) -> None:
    spark = (
        session("ledger").config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    ).getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = {"bootstrapServers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    entries = pipeline(spark.readStream.format("oncelog").options(**options).load())
    writer = exactly_once(
        entries, bootstrap_servers=servers, application_id="ledger", topic="ledger"
    )
    query = writer.outputMode(OUTPUT_MODE).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
