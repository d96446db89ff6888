"""Python clients beside each other on one broker: ours, confluent-kafka and aiokafka."""
