"""Keys and values of the records in the internal topics, byte for byte as Kafka writes them (D5).

Every key and value begins with an int16: a key's names its kind, a value's its version. They are
written by hand here; Apache's kafka-dump-log judges them.
"""
