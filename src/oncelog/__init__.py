"""Kafka's exactly-once machinery in Python, and exactly-once pipelines on Spark on top of it."""
