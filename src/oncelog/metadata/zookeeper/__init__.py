"""The metadata store in ZooKeeper, with kazoo (the extra `zookeeper`)."""

from oncelog.metadata.zookeeper.access import OPEN_ACCESS, Access, access_of
from oncelog.metadata.zookeeper.store import ZooKeeperStore

__all__ = ["OPEN_ACCESS", "Access", "ZooKeeperStore", "access_of"]
