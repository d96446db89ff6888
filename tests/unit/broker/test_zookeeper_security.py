"""Brokers on a real ZooKeeper over TLS, whose nodes are for them alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import oncelog
from oncelog.broker.broker import Broker
from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import OncelogError
from oncelog.core.secret import Secret
from tests.support.certificates import Authority
from tests.support.zookeeper import SecureServer, chroot, secure_server, shared_server

pytestmark = pytest.mark.slow

DIGEST = {"oncelog.zookeeper.digest": "brokers:node-geheim", "zookeeper.set.acl": "true"}
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "6000",
}
OPEN = ("/brokers", "/cluster", "/controller")
"""What monitors read."""


def broker(folder: Path, connect: str, *settings: dict[str, str]) -> Broker:
    own = {"log.dirs": str(folder), "zookeeper.connect": connect}
    for each in settings:
        own |= each
    return Broker(BrokerConfig({**SETTINGS, **own}))


class Attacker:
    """Whoever reaches ZooKeeper, and knows no password."""

    def __init__(self, hosts: str, connect: str) -> None:
        self.root = "/" + connect.partition("/")[2]
        self.client = KazooClient(hosts)
        self.client.start()

    def readable(self) -> dict[str, bytes]:
        """What can be read at all, by its path below the chroot."""
        found: dict[str, bytes] = {}
        left = [""]
        while left:
            path = left.pop()
            try:
                found[path] = self.client.get(self.root + path)[0]
                names = self.client.get_children(self.root + path)
            except NoAuthError:
                continue
            left += [f"{path}/{name}" for name in names]
        return found

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def connect() -> str:
    return chroot()


@pytest.fixture
def attacker(connect: str) -> Iterator[Attacker]:
    attacker = Attacker(shared_server().bootstrap_servers, connect)
    yield attacker
    attacker.close()


async def add_user(running: Broker) -> None:
    user = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo("SCRAM-SHA-512"), Secret("alice-geheim")
    )
    async with oncelog.Admin(running.bootstrap_servers) as admin:
        await admin.alter_user_scram_credentials([user])


async def live(running: Broker) -> None:
    """One life of a broker in which a user is added."""
    await running.start()
    try:
        await add_user(running)
    finally:
        await running.stop()


async def test_who_does_not_know_the_digest_reads_nothing_of_users_and_changes_nothing(
    tmp_path: Path, connect: str, attacker: Attacker
) -> None:
    running = broker(tmp_path, connect, DIGEST)
    await running.start()
    try:
        await add_user(running)
        found = attacker.readable()
        assert "/brokers/ids/1" in found
        assert all(path.startswith(OPEN) for path in found if path)
        assert not any("alice" in path or b"alice" in value for path, value in found.items())
        for path in ("", "/controller", "/brokers/ids/1", "/oncelog"):
            with pytest.raises(NoAuthError):
                attacker.client.set(attacker.root + path, b"mine")
            with pytest.raises(NoAuthError):
                attacker.client.create(f"{attacker.root}{path}/mine", b"")
    finally:
        await running.stop()


async def test_nodes_that_were_open_are_closed_at_the_next_start(
    tmp_path: Path, connect: str, attacker: Attacker, caplog: pytest.LogCaptureFixture
) -> None:
    await live(broker(tmp_path, connect))
    assert any("alice" in path for path in attacker.readable())
    caplog.set_level(logging.INFO)
    await live(broker(tmp_path, connect, DIGEST))
    assert all(path.startswith(OPEN) for path in attacker.readable() if path)
    (said,) = [r.getMessage() for r in caplog.records if "open to others" in r.getMessage()]
    assert said.startswith(f"ZooKeeper at {connect}: ")
    caplog.clear()
    await live(broker(tmp_path, connect, DIGEST))
    assert not any("open to others" in record.getMessage() for record in caplog.records)


async def test_a_broker_with_another_password_is_told_what_to_do(
    tmp_path: Path, connect: str
) -> None:
    await live(broker(tmp_path, connect, DIGEST))
    for digest in ({"oncelog.zookeeper.digest": "brokers:falsch"}, {}):
        with pytest.raises(OncelogError, match=r"give this broker the oncelog\.zookeeper\.digest"):
            await broker(tmp_path, connect, digest).start()


@pytest.mark.parametrize(
    ("connect", "given", "said"),
    [
        ("z:1/a", {"zookeeper.set.acl": "true"}, "needs oncelog.zookeeper.digest=USER:PASSWORD"),
        ("z:1", DIGEST, "needs a chroot"),
        ("z:1/a", {"oncelog.zookeeper.digest": "brokers"}, "has to be USER:PASSWORD"),
    ],
)
async def test_settings_that_would_secure_nothing_are_refused(
    tmp_path: Path, connect: str, given: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        await broker(tmp_path, connect, given).start()


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureServer]:
    with secure_server() as server:
        yield server


@pytest.mark.soak
async def test_brokers_reach_zookeeper_by_tls(tmp_path: Path, secured: SecureServer) -> None:
    connect = f"127.0.0.1:{secured.secure_port}/tls"
    await live(broker(tmp_path, connect, secured.client_settings(), DIGEST))
    attacker = Attacker(secured.bootstrap_servers, connect)
    assert all(path.startswith(OPEN) for path in attacker.readable() if path)
    attacker.close()
    # A certificate that ZooKeeper takes is no broker's password.
    other = {"oncelog.zookeeper.digest": "brokers:falsch"}
    with pytest.raises(OncelogError, match="give this broker the"):
        await broker(tmp_path, connect, secured.client_settings(), other).start()


@pytest.mark.soak
async def test_a_server_or_a_broker_that_is_not_trusted_is_named(
    tmp_path: Path, secured: SecureServer
) -> None:
    given = {**secured.client_settings(), "zookeeper.connection.timeout.ms": "2000"}
    others = Authority.make("others")
    (tmp_path / "others.pem").write_text(others.pem)
    stranger = others.sign("stranger").write(tmp_path / "stranger.pem")
    address = f"127.0.0.1:{secured.secure_port}/a"
    truststore = {"zookeeper.ssl.truststore.location": str(tmp_path / "others.pem")}
    cases = [
        (address, truststore, "name its authority in zookeeper.ssl.truststore.location"),
        (address.replace("127.0.0.1", "localhost"), {}, "its certificate is not accepted"),
        (address, {"zookeeper.ssl.keystore.location": stranger}, "does it know the authority"),
        (f"{secured.bootstrap_servers}/a", {}, "has to name a port with TLS"),
    ]
    for connect, own, said in cases:
        with pytest.raises(OncelogError, match=said):
            await broker(tmp_path, connect, given, own).start()


@pytest.mark.soak
async def test_a_certificate_need_not_name_the_host_where_that_is_said(
    tmp_path: Path, secured: SecureServer
) -> None:
    own = {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    connect = f"localhost:{secured.secure_port}/by-name"
    await live(broker(tmp_path, connect, secured.client_settings(), own))
