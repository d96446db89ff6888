"""Each order once, though its sender may send it again: dropDuplicatesWithinWatermark.

Orders are JSON, {"order": 1, "customer": "ada", "amount": 20, "at": 1700000000}; a second copy
within ten minutes of the first is dropped.

    python examples/spark_deduplicate.py 127.0.0.1:9092 /tmp/checkpoints/unique
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncelog.spark import OncelogSource, exactly_once, session

OUTPUT_MODE = "append"
ORDER = "order long, at long"


def pipeline(records: DataFrame) -> DataFrame:
    order = f.from_json(f.col("value").cast("string"), ORDER).alias("o")
    orders = records.select("key", "value", order).select("key", "value", "o.order", "o.at")
    timed = orders.withColumn("at", f.timestamp_seconds("at")).withWatermark("at", "10 minutes")
    return timed.dropDuplicatesWithinWatermark(["order"]).select("key", "value")


def main(servers: str, checkpoint: str) -> None:
    spark = session("unique").getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = {"bootstrapServers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    unique = pipeline(spark.readStream.format("oncelog").options(**options).load())
    writer = exactly_once(
        unique, bootstrap_servers=servers, application_id="unique", topic="unique-orders"
    )
    query = writer.outputMode(OUTPUT_MODE).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
