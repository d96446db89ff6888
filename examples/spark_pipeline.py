"""Records from one topic to another, each exactly once: run it, kill it, run it again.

Usage: python spark_pipeline.py HOST:PORT SOURCE TARGET CHECKPOINT
"""

import sys

from oncelog.spark import OncelogSource, exactly_once, session, watch

servers, source, target, checkpoint = sys.argv[1:]
spark = session("pipeline").getOrCreate()
spark.dataSource.register(OncelogSource)
reader = spark.readStream.format("oncelog").option("bootstrapServers", servers)
records = reader.options(subscribe=source, startingOffsets="earliest").load()
rows = records.selectExpr("key", "upper(string(value)) AS value")
writer = exactly_once(rows, bootstrap_servers=servers, application_id="pipeline", topic=target)
watch(writer.option("checkpointLocation", checkpoint).start())
