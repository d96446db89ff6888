"""The roles of one partition: leader or follower, in-sync replicas, high watermark.

Pure; see `partition.py`.
"""

from oncelog.replication.partition import PartitionState, Role

__all__ = ["PartitionState", "Role"]
