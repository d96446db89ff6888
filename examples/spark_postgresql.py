"""Orders from a folder of JSON files into a PostgreSQL table, each exactly once.

    CREATE TABLE orders (id bigint, customer text, amount numeric(10,2), at timestamptz)

Usage: python spark_postgresql.py FOLDER jdbc:postgresql://HOST/DATABASE CHECKPOINT
with PGUSER and PGPASSWORD in the environment.
"""

import os
import sys

from oncelog.spark import exactly_once_jdbc, session

SCHEMA = "id long, customer string, amount decimal(10,2), at timestamp"


def main(folder: str, url: str, checkpoint: str) -> None:
    spark = session("orders").getOrCreate()
    orders = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(folder)
    writer = exactly_once_jdbc(
        orders,
        url=url,
        user=os.environ["PGUSER"],
        password=os.environ["PGPASSWORD"],
        table="orders",
        application_id="orders",
    )
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
