"""Keys and values of the records in the internal topics, byte for byte as Kafka writes them (D5).

Every key and value begins with an int16: the kind of a key, the version of a value. The codecs are
written by hand; tests read their output with Apache's kafka-dump-log.
"""
