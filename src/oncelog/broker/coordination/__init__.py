"""Connects the pure coordinators to partitions, timers and requests.

It must not know connections nor wire messages: a request arrives as an event, and its reply is a
result of a shard.
"""
