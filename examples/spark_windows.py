"""What each customer spent per minute, written once: a window behind a watermark.

Orders are JSON, {"order": 1, "customer": "ada", "amount": 20, "at": 1700000000}; a window is
written when the watermark has passed its end.

    python examples/spark_windows.py 127.0.0.1:9092 /tmp/checkpoints/spent
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncelog.spark import OncelogSource, exactly_once, session

OUTPUT_MODE = "append"
ORDER = "order long, customer string, amount long, at long"


def pipeline(records: DataFrame) -> DataFrame:
    orders = records.select(f.from_json(f.col("value").cast("string"), ORDER).alias("o"))
    timed = orders.select("o.*").withColumn("at", f.timestamp_seconds("at"))
    spent = (
        timed.withWatermark("at", "2 minutes")
        .groupBy("customer", f.window("at", "1 minute").alias("minute"))
        .agg(f.sum("amount").alias("amount"))
    )
    minute = f.col("minute.start").cast("long").alias("minute")
    return spent.select(
        f.col("customer").alias("key"), f.to_json(f.struct(minute, "amount")).alias("value")
    )


def main(servers: str, checkpoint: str) -> None:
    spark = session("spent").getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = {"bootstrapServers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    spent = pipeline(spark.readStream.format("oncelog").options(**options).load())
    writer = exactly_once(spent, bootstrap_servers=servers, application_id="spent", topic="spent")
    query = writer.outputMode(OUTPUT_MODE).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
