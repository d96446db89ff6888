"""The Spark program that the demo kills: what a user would write, in a process of its own.

One source topic of flights; one query whose two results go out in the same transactions: every
flight more than an hour late, and a running aggregate of each carrier's day. Started by
`processes.SparkJob` as ``python -m oncelog.cli.demo.job '<json of JobOptions>'``.
"""

import json
import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncelog.cli.demo.expected import DELAYED_MINUTES
from oncelog.cli.demo.options import JobOptions
from oncelog.spark import OncelogSource, exactly_once, session

FLIGHT_SCHEMA = (
    "id LONG, date STRING, sched_dep_time INT, carrier STRING, flight INT, origin STRING,"
    " dest STRING, dep_delay INT"
)


def results(flights: DataFrame, options: JobOptions) -> DataFrame:
    """Both results as rows of (topic, key, value): the union shares one transaction per batch."""
    delayed = flights.where(f.col("dep_delay") > DELAYED_MINUTES).select(
        f.lit(options.delayed_topic).alias("topic"),
        f.col("carrier").cast("binary").alias("key"),
        f.to_json(f.struct("id", "date", "carrier", "flight", "dep_delay"))
        .cast("binary")
        .alias("value"),
    )
    is_delayed = f.coalesce((f.col("dep_delay") > DELAYED_MINUTES).cast("int"), f.lit(0))
    daily = flights.groupBy("carrier", "date").agg(
        f.count("*").alias("flights"),
        f.sum(is_delayed).alias("delayed"),
        # A departure without a time was cancelled.
        f.sum(f.col("dep_delay").isNull().cast("int")).alias("cancelled"),
        f.sum(f.coalesce(f.col("dep_delay"), f.lit(0))).alias("delay_minutes"),
    )
    columns = ("carrier", "date", "flights", "delayed", "cancelled", "delay_minutes")
    updates = daily.select(
        f.lit(options.daily_topic).alias("topic"),
        f.concat_ws("|", "carrier", "date").cast("binary").alias("key"),
        f.to_json(f.struct(*columns)).cast("binary").alias("value"),
    )
    return delayed.unionByName(updates)


def run(options: JobOptions) -> None:
    """Run the query to the end of what is in the input topic now."""
    spark = session("oncelog-demo").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(OncelogSource)
    source = (
        spark.readStream.format("oncelog")
        .option("bootstrapServers", options.bootstrap_servers)
        .option("subscribe", options.input_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(options.records_per_batch))
        .load()
    )
    value = f.from_json(f.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")
    flights = source.select(value).select("flight.*")
    query = (
        exactly_once(
            results(flights, options),
            bootstrap_servers=options.bootstrap_servers,
            application_id=options.application_id,
            topics=(options.delayed_topic, options.daily_topic),
            progress_path=options.progress_path,
        )
        .outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run(JobOptions(**json.loads(sys.argv[1])))
