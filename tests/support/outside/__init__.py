"""Test suites of other clients, unchanged, on three brokers of ours and on Apache Kafka's."""
