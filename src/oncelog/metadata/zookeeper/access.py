"""How a broker reaches ZooKeeper and who it is there, by its settings."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import Final

from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret
from oncelog.metadata.zookeeper.nodes import parse_servers
from oncelog.runtime.pem import Store, read_pem
from oncelog.runtime.tls import Tls

__all__ = ["DIGEST_KEY", "OPEN_ACCESS", "Access", "ZooKeeperTls", "access_of", "tls_context"]

log = logging.getLogger(__name__)

DIGEST_KEY: Final = "oncelog.zookeeper.digest"
_KEYSTORE: Final = "zookeeper.ssl.keystore.location"
_TRUSTSTORE: Final = "zookeeper.ssl.truststore.location"


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """The settings of TLS; their files are read for each connection, so that new ones are taken."""

    keystore: str | None
    key_password: Secret | None
    truststore: str | None
    verifies_host: bool
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """How a broker reaches ZooKeeper."""

    tls: ZooKeeperTls | None = None
    digest: Secret | None = None
    """``user:password``, by which brokers are known there."""
    sets_acls: bool = False
    """Whether only those who know the digest may change nodes, and read those with secrets."""


OPEN_ACCESS: Final = Access()
"""In plain text, and nodes are for all."""


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Read the files; this blocks. Raises `ConfigError` and `TlsError` in one sentence."""
    own = Store("", None) if tls.keystore is None else read_pem(_KEYSTORE, tls.keystore)
    if tls.keystore is not None and (own.key is None or not own.certificates):
        missing = "certificate" if own.key is not None else "private key"
        raise ConfigError(f"{_KEYSTORE}: {tls.keystore} has no {missing}")
    return Tls(
        trusted=tls.truststore and read_pem(_TRUSTSTORE, tls.truststore).certificates,
        certificates=own.certificates or None,
        key=own.key,
        key_password=tls.key_password,
        protocols=tls.protocols,
        verify_host=tls.verifies_host,
    ).context()


def access_of(config: BrokerConfig, connect: str) -> Access:
    """Return what the settings of a broker say. Raises `OncelogError` for what does not work."""
    tls = _tls_of(config) if config.get_bool("zookeeper.ssl.client.enable") else None
    text = config.get_str("oncelog.zookeeper.digest")
    if text is not None and not all(text.partition(":")):
        raise ConfigError(f"{DIGEST_KEY} has to be USER:PASSWORD")
    sets_acls = config.get_bool("zookeeper.set.acl")
    if sets_acls and text is None:
        raise ConfigError(
            f"zookeeper.set.acl needs {DIGEST_KEY}=USER:PASSWORD, the same in each broker: whoever "
            "knows it is a broker to ZooKeeper"
        )
    if sets_acls and not parse_servers(connect).chroot:
        raise ConfigError(
            f"zookeeper.set.acl needs a chroot, as in zookeeper.connect={connect.strip()}/oncelog: "
            "ZooKeeper's root is for all who reach it"
        )
    if text is not None and tls is None:
        log.warning(
            "%s crosses the network in plain text: zookeeper.ssl.client.enable=true hides it",
            DIGEST_KEY,
        )
    return Access(tls, None if text is None else Secret(text), sets_acls)


def _tls_of(config: BrokerConfig) -> ZooKeeperTls:
    password = config.get_str("zookeeper.ssl.keystore.password")
    algorithm = config.get_str("zookeeper.ssl.endpoint.identification.algorithm")
    tls = ZooKeeperTls(
        keystore=config.get_str("zookeeper.ssl.keystore.location"),
        key_password=Secret(password) if password else None,
        truststore=config.get_str("zookeeper.ssl.truststore.location"),
        verifies_host=bool(algorithm),
        protocols=config.get_list("zookeeper.ssl.enabled.protocols"),
    )
    tls_context(tls)
    return tls
