"""Named limits: every queue, buffer, retry and loop has one (STYLE point 10). Units stand last in the name."""

INT32_MAX = 2**31 - 1
PRODUCER_EPOCH_MAX = 2**15 - 1
"""Largest producer epoch on the wire (int16)."""

PRODUCER_EPOCH_EXHAUSTED = PRODUCER_EPOCH_MAX - 1
"""From this epoch on a bump moves to a fresh producer id (facts: epoch exhausted at >= 32766)."""

SEQUENCE_MODULUS = 2**31
"""Sequence numbers wrap here (INV-2)."""

CACHED_BATCHES_PER_PRODUCER_COUNT = 5
"""Batches per producer and partition kept to recognise duplicates; Kafka's clients keep at most five in flight."""

PRODUCER_ID_BLOCK_COUNT = 1000
"""Producer ids reserved in the metadata store at a time (INV-11)."""
