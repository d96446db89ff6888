"""The group coordinator: classic consumer groups and committed offsets, as a pure shard.

`GroupCoordinatorShard` (its module tells the theory of operation) decides `events` and answers
`results`.
"""

from oncelog.group.config import GroupConfig
from oncelog.group.shard import GroupCoordinatorShard

__all__ = ["GroupConfig", "GroupCoordinatorShard"]
