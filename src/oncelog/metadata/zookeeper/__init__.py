"""The metadata store in ZooKeeper, with kazoo (the extra `zookeeper`)."""

from oncelog.metadata.zookeeper.store import ZooKeeperStore

__all__ = ["ZooKeeperStore"]
