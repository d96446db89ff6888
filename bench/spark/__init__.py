"""Our sink and source beside Spark's own Kafka connector, and Kafka Streams on the same job.

One SparkSession and both brokers live through all rows. A row has peers, which take turns on each
broker; the same windows warm them up and measure them. `rows` is the table, `run` the order.
"""
