"""What is ours of the client: which nodes are open, and TLS connections that hold data."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from kazoo.security import ACL, Id, make_digest_acl

from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret
from oncelog.metadata.zookeeper.access import (
    OPEN_ACCESS,
    Access,
    ZooKeeperTls,
    access_of,
    tls_context,
)
from oncelog.metadata.zookeeper.client import OPEN, Handler, acl_for, is_open, new_client
from oncelog.metadata.zookeeper.nodes import has_secrets
from tests.support.certificates import Authority

READ, WRITE = 1, 2


def world(perms: int) -> ACL:
    return ACL(perms, Id("world", "anyone"))


@pytest.mark.parametrize(
    ("path", "is_secret"),
    [("", False), ("/brokers/ids/1", False), ("/oncelog", True), ("/oncelog/scram/a", True)],
)
def test_what_kafka_does_not_have_is_for_brokers_alone(path: str, is_secret: bool) -> None:
    assert has_secrets(path) is is_secret


@pytest.mark.parametrize("is_secret", [True, False])
def test_nodes_that_are_made_are_not_open(is_secret: bool) -> None:
    assert not is_open(acl_for(Secret("a:b"), is_secret=is_secret), is_secret=is_secret)
    assert is_open(OPEN, is_secret=is_secret)


def test_everyone_may_read_a_node_without_secrets_and_no_more() -> None:
    own = make_digest_acl("a", "b", all=True)
    assert not is_open([own, world(READ)], is_secret=False)
    assert is_open([own, world(READ)], is_secret=True)
    assert is_open([own, world(READ | WRITE)], is_secret=False)


def test_a_connection_that_holds_read_bytes_can_be_read(tmp_path: Path) -> None:
    """The system's `select` knows nothing of them: an answer would wait for the next packet."""
    authority = Authority.make()
    (tmp_path / "authority.pem").write_text(authority.pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.sign("server", "localhost").write(tmp_path / "server.pem"))
    client = ZooKeeperTls(None, None, str(tmp_path / "authority.pem"), True, ("TLSv1.2",))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as peer:
            peer.sendall(b"two answers")
            peer.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with tls_context(client).wrap_socket(ours, server_hostname="localhost") as connection:
        assert connection.recv(4) == b"two "
        found = Handler(OPEN_ACCESS).select([connection], [], [], 0)
        assert found == ([connection], [], [])
        assert connection.recv(20) == b"answers"
        assert Handler(OPEN_ACCESS).select([connection], [], [], 0) == ([], [], [])
    thread.join()


def test_a_server_that_does_not_shake_hands_costs_a_part_of_a_session() -> None:
    access = Access(ZooKeeperTls(None, None, None, True, ("TLSv1.3",)))
    handler = Handler(access)
    new_client("one:2181,two:2181", 900, handler, access)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun_s = time.monotonic()
        with pytest.raises(TimeoutError):
            handler.create_connection(silent.getsockname(), "127.0.0.1", 0.9)
        assert 0.2 <= time.monotonic() - begun_s < 0.6


@pytest.mark.parametrize("digest", ["brokers", "brokers:", ":secret"])
def test_a_digest_has_a_user_and_a_password(digest: str) -> None:
    config = BrokerConfig({"oncelog.zookeeper.digest": digest})
    with pytest.raises(ConfigError, match="has to be USER:PASSWORD"):
        access_of(config, "127.0.0.1:1/c")


def test_a_keystore_without_a_key_is_refused(tmp_path: Path) -> None:
    authority = Authority.make()
    (tmp_path / "own.pem").write_text(authority.sign("broker").pem)
    tls = ZooKeeperTls(str(tmp_path / "own.pem"), Secret("x"), None, True, ("TLSv1.3",))
    with pytest.raises(ConfigError, match="has no private key"):
        tls_context(tls)
