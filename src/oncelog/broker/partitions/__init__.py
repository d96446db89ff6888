"""The partitions of a broker: their logs and roles, and the operations that wait on them.

It must not know the wire, connections or coordinators.
"""
