"""The group coordinator as a pure shard: consumer groups of both protocols, and their offsets.

`GroupCoordinatorShard`, whose module explains how it works, decides `events` and returns `results`.
"""

from oncelog.group.config import GroupConfig
from oncelog.group.shard import GroupCoordinatorShard

__all__ = ["GroupConfig", "GroupCoordinatorShard"]
