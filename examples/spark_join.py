"""Each order with its payment, or without one after a minute: a join of two streams.

Orders are JSON, {"order": 1, "customer": "ada", "amount": 20, "at": 1700000000}, payments
{"order": 1, "at": 1700000005}. An unpaid order is written when the watermarks have passed its
minute.

    python examples/spark_join.py 127.0.0.1:9092 /tmp/checkpoints/payments
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncelog.spark import OncelogSource, exactly_once, session

OUTPUT_MODE = "append"


def pipeline(order_records: DataFrame, payment_records: DataFrame) -> DataFrame:
    orders = timed(order_records, "order long, customer string, at long", "order_at")
    payments = timed(payment_records, "order long, at long", "paid_at")
    in_time = f.expr("paid_at between order_at and order_at + interval 1 minute")
    same = orders["order"] == payments["order"]
    joined = orders.join(payments, same & in_time, "left_outer")
    paid_at = f.col("paid_at").cast("long").alias("paid_at")
    value = f.to_json(f.struct(orders["order"], paid_at))
    return joined.select(f.col("customer").alias("key"), value.alias("value"))


def timed(records: DataFrame, schema: str, name: str) -> DataFrame:
    fields = records.select(f.from_json(f.col("value").cast("string"), schema).alias("r"))
    at = f.timestamp_seconds("at").alias(name)
    return fields.select("r.*").select("*", at).drop("at").withWatermark(name, "1 minute")


def main(servers: str, checkpoint: str) -> None:
    spark = session("payments").getOrCreate()
    spark.dataSource.register(OncelogSource)
    reader = spark.readStream.format("oncelog").option("bootstrapServers", servers)
    reader = reader.option("startingOffsets", "earliest")
    orders, payments = (reader.option("subscribe", t).load() for t in ("orders", "payments"))
    writer = exactly_once(
        pipeline(orders, payments),
        bootstrap_servers=servers,
        application_id="payments",
        topic="paid-orders",
    )
    query = writer.outputMode(OUTPUT_MODE).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
