"""The role of a broker in one partition: leader epoch, in-sync replicas, high watermark.

Pure; see `oncelog.replication.partition`.
"""

from oncelog.replication.partition import PartitionState, ReplicaRole

__all__ = ["PartitionState", "ReplicaRole"]
