"""Where the pure coordinators meet partitions, timers and requests.

It must not know connections nor any message of the wire: a request comes as an event, its answer
leaves as the result of a shard.
"""
