"""What users of Kafka's tools, kcat and rpk type, and what it is called here.

`table` is the data: spellings that are understood, and spellings with the answer that names the
right ones. `translate` rewrites a command line by it before click reads it, so the commands, their
help and their completion know only our own names. `hints` names what an unknown word may mean.
"""
