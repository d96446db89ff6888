"""``oncelog cluster import``: move the metadata of a broker that is alone to ZooKeeper.

The broker's file stays as it is until ZooKeeper has everything, and is renamed then. A command that
was interrupted is repeated: it ends as if it had been the first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from oncelog.broker.controller.upgrade import upgrade_store
from oncelog.broker.membership.stores import METADATA_FILE
from oncelog.cli.output import print_text
from oncelog.cli.serve import gather
from oncelog.cli.tool import Failure, ToolCommand
from oncelog.controller import layout
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import OncelogError
from oncelog.metadata.sqlite import SqliteStore
from oncelog.runtime.disk import Disk, SystemDisk
from oncelog.runtime.installation import ExtraMissing, require_extra
from oncelog.storage.identity import Identity
from oncelog.storage.log_directory import LogDirectory

__all__ = ["ASIDE_SUFFIX", "command", "import_file"]

ASIDE_SUFFIX: Final = ".imported"
_LAST: Final = (layout.CLUSTER_PATH, layout.FORMAT_PATH)


@click.command("import", cls=ToolCommand)
@click.option(
    "--data-dir",
    "directories",
    metavar="DIR",
    multiple=True,
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="A log directory of the broker; repeat it for each.",
)
@click.option(
    "--metadata-file",
    metavar="FILE",
    help="What oncelog.metadata.file names, if it is set.",
)
@click.option(
    "--zookeeper",
    "connect",
    metavar="HOST:PORT/CHROOT",
    required=True,
    help="What zookeeper.connect is going to be.",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="The broker's .properties file: whether ZooKeeper has TLS and ACLs.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="One setting; repeatable."
)
def command(
    directories: tuple[str, ...],
    metadata_file: str | None,
    connect: str,
    config_file: str | None,
    settings: tuple[str, ...],
) -> None:
    """Move the metadata of a broker that is alone to ZooKeeper.

    The broker is stopped, and the chroot empty or not there. Topics, ids and epochs are kept, and
    the records stay where they are. Set zookeeper.connect before the broker is started again.
    """
    disk = SystemDisk()
    try:
        require_extra("oncelog cluster import", "zookeeper", ["kazoo"])
        config = BrokerConfig(gather(config_file, None, None, settings))
        with _taken(disk, directories) as identity:
            file = metadata_file or _file_in(directories)
            is_new = asyncio.run(import_file(file, connect, identity, config))
            os.rename(file, file + ASIDE_SUFFIX)
            disk.sync_dir(os.path.dirname(file) or ".")
    except (OncelogError, ExtraMissing) as error:
        raise Failure(str(error)) from None
    finally:
        disk.close()
    if not is_new:
        print_text(f"{connect} has all of it since an import that was interrupted")
    print_text(f"moved the metadata to {connect}; {file} is {file}{ASIDE_SUFFIX} now")
    print_text(f"start the broker with zookeeper.connect={connect}")


async def import_file(file: str, connect: str, owner: Identity, config: BrokerConfig) -> bool:
    """Write the values of a SQLite file to ZooKeeper; False: they were there already.

    `owner` is a broker that does not run, with the settings in `config`. Raises `OncelogError`;
    what was written by then is no store to any broker.
    """
    # Imported here because the package is an extra's.
    from oncelog.metadata.zookeeper import ZooKeeperStore, access_of
    from oncelog.metadata.zookeeper.importing import import_values

    access = access_of(config, connect)
    source = SqliteStore(file)
    try:
        await upgrade_store(source, owner.cluster_id)
        found = await source.list("")
    finally:
        await source.close()
    values = {path: stored.value for path, stored in found.items() if not _is_left_out(path)}
    if any(path not in values for path in _LAST):
        raise OncelogError(f"{file} has no metadata of a cluster")
    if layout.decode_cluster_id(values[layout.CLUSTER_PATH]) != owner.cluster_id:
        raise OncelogError(f"{file} is not of the log directory's cluster, {owner.cluster_id}")
    for path in found:
        if path.startswith(layout.BROKERS_PREFIX) and path != layout.broker_path(owner.node_id):
            number = path.removeprefix(layout.BROKERS_PREFIX)
            raise OncelogError(f"broker {number} is registered in {file}: stop it in order first")
    target = ZooKeeperStore(connect, is_import=True, access=access)
    try:
        return await import_values(target, values, _LAST)
    finally:
        await target.close()


def _is_left_out(path: str) -> bool:
    """Whether brokers write it again at each start."""
    return path == layout.CONTROLLER_PATH or path.startswith(layout.BROKERS_PREFIX)


@contextmanager
def _taken(disk: Disk, directories: tuple[str, ...]) -> Iterator[Identity]:
    """Keep brokers off the log directories, and say whose they are."""
    folders: list[LogDirectory] = []
    try:
        for directory in directories:
            folders.append(LogDirectory.take(disk, directory.rstrip("/") or "/", None))
        identities = [folder.identity for folder in folders]
        owners = {one and (one.cluster_id, one.node_id) for one in identities}
        (first, *_) = identities
        if first is None or len(owners) > 1:
            raise OncelogError("these are not the log directories of one broker")
        yield first
    finally:
        for folder in folders:
            folder.release()


def _file_in(directories: tuple[str, ...]) -> str:
    for directory in directories:
        file = os.path.join(directory, METADATA_FILE)
        if os.path.exists(file):
            return file
    aside = os.path.join(directories[0], METADATA_FILE + ASIDE_SUFFIX)
    if os.path.exists(aside):
        raise OncelogError(f"its metadata was moved to ZooKeeper already: {aside} is what it was")
    raise OncelogError(f"there is no {METADATA_FILE} in {', '.join(directories)}")
