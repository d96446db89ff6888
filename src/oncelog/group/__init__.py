"""The group coordinator: classic consumer groups and committed offsets, as a pure machine.

`GroupMachine` (its module tells the theory of operation) decides `events` and answers `results`.
"""

from oncelog.group.config import GroupConfig
from oncelog.group.machine import GroupMachine

__all__ = ["GroupConfig", "GroupMachine"]
