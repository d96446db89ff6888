"""Copy a topic to another exactly once, for `spark-submit` on any cluster manager.

    spark-submit ... examples/spark_submit_copy.py SERVERS FROM TO CHECKPOINT

The session is Spark's own builder: master, memory and Python come from the command line. The
checkpoint has to be on storage that every driver of this query reaches.
"""

import sys

from pyspark.sql import SparkSession

from oncelog.spark import OncelogSource, exactly_once


def copy(servers: str, origin: str, target: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName(f"copy-{target}").getOrCreate()
    spark.dataSource.register(OncelogSource)
    source = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", servers)
    source = source.options(subscribe=origin, startingOffsets="earliest")
    rows = source.load().select("key", "value")
    name = f"copy-{origin}-{target}"
    writer = exactly_once(rows, bootstrap_servers=servers, application_id=name, topic=target)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    copy(*sys.argv[1:])
