"""The roles of one partition: leader or follower, in-sync replicas, high watermark.

Pure; see `partition.py`.
"""

from oncelog.replication.partition import PartitionState, ReplicaRole

__all__ = ["PartitionState", "ReplicaRole"]
