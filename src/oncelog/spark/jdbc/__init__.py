"""Exactly once into PostgreSQL: a micro-batch's rows and its marker in one transaction (INV-10).

The protocol is that of `oncelog.spark.batch_protocol`, with a database in place of Kafka's
coordinator. Tasks copy rows into a staging table, and the driver moves those of the attempts that
Spark accepted into the target table, in the transaction that also writes the marker.
"""

from oncelog.spark.jdbc.sink import exactly_once_jdbc

__all__ = ["exactly_once_jdbc"]
