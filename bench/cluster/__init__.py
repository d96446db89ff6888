"""Three brokers of Oncelog beside three of Apache Kafka, on one machine."""
