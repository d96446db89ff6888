"""The ways into brokers with an authorizer: in plain text, by SASL, by TLS, and by both.

Whoever has no ACL against it may do everything, as in librdkafka's own clusters; the brokers are
super users. Nobody logs in on the plain listener, whose clients are the user ANONYMOUS.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization

from oncelog.client import (
    AdminConfig,
    ClientError,
    ScramCredentialInfo,
    UserScramCredentialUpsertion,
)
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.core.secret import Secret
from oncelog.sync import Admin
from tests.support.certificates import Authority
from tests.support.peer.child import BrokerChild, free_port
from tests.support.peer.kafka import KafkaPeer

USER, PASSWORD = "tester", "tester-geheim"
KEY_PASSWORD = "key-geheim"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS: Final = {
    "BROKERS": "SASL_PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "TLS": "SSL",
}
"""Beside the plain one; the first is for brokers among themselves."""
KNOWN_S_MAX: Final = 30
_BROKER: Final = "broker"
_SECURITY: Final = "org.apache.kafka.common.security"
_LOGIN: Final = f'{_SECURITY}.plain.PlainLoginModule required username="{_BROKER}" '
_LOGIN_LINE: Final = f'{_LOGIN}password="{_BROKER}-geheim" user_{_BROKER}="{_BROKER}-geheim";'
_OAUTH: Final = f"{_SECURITY}.oauthbearer"
_CONTROLLERS: Final = {
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": _LOGIN_LINE,
}
"""Of Apache Kafka, whose controllers have the authorizer too."""


@dataclass(frozen=True)
class Ways:
    """The brokers' addresses by listener, and what a client shows and trusts."""

    addresses: Mapping[str, Sequence[str]]
    files: Mapping[str, str]
    """By the names of librdkafka's tests: ``ca_pem``, ``priv_pem`` and so on."""
    settings: Sequence[Mapping[str, str]]
    """Of each broker."""

    def servers(self, listener: str) -> str:
        """``host:port`` of each broker."""
        return ",".join(self.addresses[listener])


def secure(brokers: Sequence[BrokerChild], folder: Path) -> Ways:
    """Return what gives brokers that were not started yet these listeners and an authorizer."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.make()
    keystore = authority.sign("broker", "localhost", "127.0.0.1").write(folder / "broker.pem")
    (folder / "ca.pem").write_text(authority.pem)
    addresses: dict[str, list[str]] = {name: [] for name in ("PLAINTEXT", *LISTENERS)}
    settings = []
    for broker in brokers:
        own = {"PLAINTEXT": broker.port, **{name: free_port() for name in LISTENERS}}
        for name, port in own.items():
            addresses[name].append(f"127.0.0.1:{port}")
        given = _shared(keystore, str(folder / "ca.pem"))
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in own.items()]
        given["listeners"] = ",".join(listeners)
        if isinstance(broker, KafkaPeer):
            given["advertised.listeners"] = given["listeners"]
            given["listeners"] += f",CONTROLLER://127.0.0.1:{broker.voters[broker.node_id]}"
            given |= _CONTROLLERS
            given["listener.security.protocol.map"] += ",CONTROLLER:SASL_PLAINTEXT"
            given |= {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
        settings.append(given)
    return Ways(addresses, _client_files(authority, folder, KEY_PASSWORD), settings)


def _shared(keystore: str, truststore: str) -> dict[str, str]:
    given = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {"PLAINTEXT": "PLAINTEXT", **LISTENERS}.items()
        ),
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.brokers.plain.sasl.jaas.config": _LOGIN_LINE,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": truststore,
        "listener.name.tls.ssl.client.auth": "required",
        # As in librdkafka's own clusters: with TLS 1.3 a refusal comes after the handshake.
        "listener.name.tls.ssl.enabled.protocols": "TLSv1.2",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{_BROKER}",
        "allow.everyone.if.no.acl.found": "true",
    }
    validator = f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    for name in ("sasl", "sasltls"):
        start = f"listener.name.{name}"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            login = f"{_SECURITY}.scram.ScramLoginModule required;"
            given[f"{start}.{mechanism}.sasl.jaas.config"] = login
        login = f'{_OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";'
        given[f"{start}.oauthbearer.sasl.jaas.config"] = login
        given[f"{start}.oauthbearer.sasl.server.callback.handler.class"] = validator
    return given


def _client_files(authority: Authority, folder: Path, password: str) -> dict[str, str]:
    """Write a client's certificate in each format that librdkafka reads."""
    own = authority.sign("client")
    der = serialization.Encoding.DER
    key = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    contents = {
        "ca_pem": authority.pem.encode(),
        "ca_der": authority.certificate.public_bytes(der),
        "all_cas_pem": (Authority.make("another authority").pem + authority.pem).encode(),
        "pub_pem": own.pem.encode(),
        "pub_der": own.certificate.public_bytes(der),
        "priv_pem": own.key_pem(password).encode(),
        "priv_plain": own.key_pem().encode(),
        "priv_der": own.key.private_bytes(der, *key),
        "pkcs": own.pkcs12(password, authority),
    }
    for name, content in contents.items():
        (folder / f"client-{name}").write_bytes(content)
    return {name: str(folder / f"client-{name}") for name in contents}


def add_user(ways: Ways) -> None:
    """Have `USER` log in by SCRAM; returns once each broker lets it in."""
    with Admin(ways.servers("PLAINTEXT")) as admin:
        for mechanism in MECHANISMS[:2]:
            info = ScramCredentialInfo(mechanism, 4096)
            user = UserScramCredentialUpsertion(USER, info, Secret(PASSWORD))
            admin.alter_user_scram_credentials([user])
    deadline_s = time.monotonic() + KNOWN_S_MAX
    for address in ways.addresses["SASL"]:
        while not _lets_in(address):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{address} does not know the user {USER}")


def _lets_in(address: str) -> bool:
    login: AdminConfig = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    try:
        with Admin(address, login) as admin:
            admin.list_topics()
    except ClientError:
        return False
    return True
