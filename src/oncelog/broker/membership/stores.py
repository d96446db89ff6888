"""Opens the metadata store that a broker's settings name."""

from __future__ import annotations

from oncelog.controller.layout import ROOTS
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import as_int
from oncelog.core.errors import OncelogError
from oncelog.metadata.store import MetadataStore
from oncelog.runtime.disk import Disk

__all__ = ["METADATA_FILE", "metadata_file", "open_store", "session_timeout_ms"]

METADATA_FILE = "metadata.sqlite"


def open_store(config: BrokerConfig, disk: Disk, *, syncs: bool = True) -> MetadataStore:
    """Return the store in ZooKeeper, or that in a SQLite file.

    Raises `ExtraMissing` where kazoo is not installed, and `OncelogError` for settings that
    contradict each other and for a folder whose metadata is in a SQLite file still.
    """
    connect = config.get_str("zookeeper.connect")
    if connect:
        return _open_zookeeper(config, disk, connect)
    # Imported here because tests and the simulation never need SQLite.
    from oncelog.metadata.sqlite import SqliteStore

    return SqliteStore(metadata_file(config, disk), syncs=syncs)


def metadata_file(config: BrokerConfig, disk: Disk) -> str:
    """Return the path of the SQLite file, which may not exist yet."""
    path = config.get_str("oncelog.metadata.file")
    if path:
        return path
    paths = [f"{directory}/{METADATA_FILE}" for directory in config.data_dirs]
    return next(filter(disk.exists, paths), paths[0])


def _open_zookeeper(config: BrokerConfig, disk: Disk, connect: str) -> MetadataStore:
    if config.get_str("oncelog.metadata.file"):
        raise OncelogError("zookeeper.connect and oncelog.metadata.file name two metadata stores")
    file = metadata_file(config, disk)
    if disk.exists(file):
        raise OncelogError(
            f"{file} has the metadata of a broker without ZooKeeper: move it there by `oncelog "
            f"cluster import --data-dir {config.data_dirs[0]} --zookeeper {connect}`"
        )
    # Imported here because most brokers have a SQLite file.
    from oncelog.runtime.installation import require_extra

    require_extra("zookeeper.connect", "zookeeper", ["kazoo"])
    from oncelog.metadata.zookeeper import ZooKeeperStore, access_of

    timeout_ms = session_timeout_ms(config)
    wait_ms = config.get("zookeeper.connection.timeout.ms")
    return ZooKeeperStore(
        connect,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=timeout_ms if wait_ms is None else as_int(wait_ms),
        roots=ROOTS,
        access=access_of(config, connect),
    )


def session_timeout_ms(config: BrokerConfig) -> int:
    """Return how long the store may not hear of a broker that lives."""
    if config.get_str("zookeeper.connect"):
        return config.get_int("zookeeper.session.timeout.ms")
    return config.get_int("broker.session.timeout.ms")
