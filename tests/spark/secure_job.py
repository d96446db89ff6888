"""A streaming job that reads and writes with TLS and SASL, and shows all it can of itself.

It prints its plans, its progress and its log; arguments: a JSON file of what to do.
"""

import json
import sys
from pathlib import Path

from oncelog.spark import OncelogSource, exactly_once, session
from tests.spark.job import QUICK_JVM


def main() -> None:
    told = json.loads(Path(sys.argv[1]).read_text())
    builder = (
        session("secure-job", cores=2)
        .config("spark.log.level", "INFO")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", told["events"])
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.driver.memory", "512m")
    )
    spark = builder.getOrCreate()
    spark.dataSource.register(OncelogSource)
    source = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", told["servers"])
        .option("subscribe", told["input"])
        .option("startingOffsets", "earliest")
        .options(**{f"kafka.{name}": value for name, value in told["settings"].items()})
        .load()
    )
    source.explain(True)
    writer = exactly_once(
        source.select("key", "value"),
        bootstrap_servers=told["servers"],
        application_id=told["input"],
        topic=told["output"],
        client_options=told["settings"],
        progress_path=told["progress"],
    )
    query = (
        writer.option("checkpointLocation", told["checkpoint"]).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress, source, writer, spark.sparkContext.getConf().getAll())
    spark.stop()


if __name__ == "__main__":
    main()
