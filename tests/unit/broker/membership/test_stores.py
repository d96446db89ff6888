"""Which metadata store a broker's settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.broker.membership.stores import metadata_file, open_store
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import OncelogError
from oncelog.metadata.sqlite import SqliteStore
from oncelog.metadata.zookeeper import ZooKeeperStore
from oncelog.runtime.disk import SystemDisk


def config(folder: Path, **settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig({"log.dirs": str(folder), **given})


async def test_a_broker_keeps_its_metadata_in_a_file_unless_it_names_zookeeper(
    tmp_path: Path,
) -> None:
    disk = SystemDisk()
    assert isinstance(open_store(config(tmp_path), disk), SqliteStore)
    store = open_store(config(tmp_path, zookeeper_connect="127.0.0.1:1/a"), disk)
    assert isinstance(store, ZooKeeperStore)
    await store.close()


@pytest.mark.parametrize(("there", "wanted"), [((), "a"), (("b",), "b"), (("a", "b"), "a")])
def test_metadata_is_in_the_first_folder_unless_another_has_it(
    tmp_path: Path, there: tuple[str, ...], wanted: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for name in there:
        (tmp_path / name / "metadata.sqlite").touch()
    both = BrokerConfig({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
    assert metadata_file(both, SystemDisk()) == f"{tmp_path / wanted}/metadata.sqlite"


def test_two_stores_are_refused(tmp_path: Path) -> None:
    both = config(tmp_path, zookeeper_connect="z:1", oncelog_metadata_file="/m")
    with pytest.raises(OncelogError, match=r"zookeeper\.connect and oncelog\.metadata\.file"):
        open_store(both, SystemDisk())


def test_a_folder_with_metadata_of_its_own_is_to_be_imported_first(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").touch()
    with pytest.raises(OncelogError) as refused:
        open_store(config(tmp_path, zookeeper_connect="z:1/a"), SystemDisk())
    assert str(refused.value) == (
        f"{tmp_path}/metadata.sqlite has the metadata of a broker without ZooKeeper: move it there "
        f"by `oncelog cluster import --data-dir {tmp_path} --zookeeper z:1/a`"
    )


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OncelogError, match="is not HOST:PORT,HOST:PORT/CHROOT"):
        open_store(config(tmp_path, zookeeper_connect="z:x"), SystemDisk())
