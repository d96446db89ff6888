"""The messages of Kafka's protocol, one module per API: its request and its response.

Each is one dataclass for all versions that this project speaks, declared as
`oncelog.protocol.fields` says. Names, types, versions and defaults are those of Kafka's message
definitions (`clients/src/main/resources/common/message`); fields in `_ms` are milliseconds. Where a
later version of Kafka's folded single values into an array, only the array is here. Produce and
Fetch have codecs of their own (`oncelog.protocol.produce`, `oncelog.protocol.fetch`).

A module is imported when its API is first used.
"""
