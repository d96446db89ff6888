"""A job that moves records with what `client_config(for_="spark")` gave, as each source takes it.

Arguments: a JSON file with the options, the topics, and the jars of Spark's own connector.
"""

import json
import sys
from pathlib import Path

from oncelog.spark import OncelogSource, exactly_once, session
from tests.spark.job import QUICK_JVM


def main() -> None:
    told = json.loads(Path(sys.argv[1]).read_text())
    builder = session("kit-job", cores=2).config("spark.jars", told["jars"])
    builder = builder.config("spark.driver.extraJavaOptions", QUICK_JVM)
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    spark.dataSource.register(OncelogSource)
    options = told["options"]
    for source in ("oncelog", "kafka"):
        reader = spark.readStream.format(source).options(**options)
        rows = reader.option("subscribe", "in").option("startingOffsets", "earliest").load()
        rows = rows.select("key", "value")
        by_spark = rows.writeStream.format("kafka").options(**options).option("topic", source)
        ours = exactly_once(
            rows,
            bootstrap_servers=options["kafka.bootstrap.servers"],
            application_id=f"kit-{source}",
            topic=f"{source}-once",
            client_options=options,
        )
        for name, writer in (("spark", by_spark), ("ours", ours)):
            place = str(Path(told["folder"]) / f"{source}-{name}")
            writer = writer.option("checkpointLocation", place)
            writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
