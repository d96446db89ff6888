"""The group coordinator as a pure shard: consumer groups of both protocols, and their offsets.

`GroupCoordinatorShard` in `shard`, whose text explains how it works, decides `events` and returns
`replies`. The package imports none of its modules, so that a broker can import them one by one.
"""
