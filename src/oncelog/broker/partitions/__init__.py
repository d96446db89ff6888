"""The partitions of a broker: their logs and roles, and the operations that wait on them.

This package must not know the wire protocol, connections or coordinators.
"""
