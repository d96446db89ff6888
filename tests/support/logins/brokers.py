"""Both brokers with the same listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.client import ScramCredentialInfo, UserScramCredentialUpsertion
from oncelog.sync import Admin
from tests.support.broker import BrokerProcess
from tests.support.logins.cases import (
    AUDIENCE,
    HOST,
    ISSUER,
    LISTENERS,
    MECHANISMS,
    ONE_MECHANISM,
    PASSWORD,
    USER,
    Papers,
)
from tests.support.peer.child import free_port
from tests.support.peer.kafka import KafkaPeer

__all__ = ["Doors", "kafka_doors", "oncelog_doors"]

_SECURITY: Final = "org.apache.kafka.common.security"
_LOGINS: Final = {
    "PLAIN": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule required;",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
}
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CERTIFICATES: Final = {"EXPIRED": "expired-broker", "ELSEWHERE": "elsewhere"}


class Doors(NamedTuple):
    """Where the listeners of a running broker are, and its papers."""

    ports: dict[str, int]
    papers: Papers

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"


def _settings(papers: Papers, ports: dict[str, int]) -> dict[str, str]:
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    found = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": papers.file("broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": papers.file("authority"),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.one.sasl.enabled.mechanisms": ONE_MECHANISM,
        "offsets.topic.num.partitions": "1",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    for listener, name in _CERTIFICATES.items():
        prefix = f"listener.name.{listener.lower()}"
        found[f"{prefix}.ssl.keystore.type"] = "PEM"
        found[f"{prefix}.ssl.keystore.location"] = papers.file(name)
    for listener, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            served = [ONE_MECHANISM] if listener == "ONE" else MECHANISMS
            for mechanism in served:
                prefix = f"listener.name.{listener.lower()}.{mechanism.lower()}"
                found[f"{prefix}.sasl.jaas.config"] = _LOGINS[mechanism]
    return found


def _ports(first: int) -> dict[str, int]:
    return {name: first if name == "PLAINTEXT" else free_port() for name in LISTENERS}


@contextmanager
def oncelog_doors(folder: Path, papers: Papers) -> Iterator[Doors]:
    """A broker of ours, as a process."""
    broker = BrokerProcess(folder / "oncelog")
    ports = _ports(broker.port)
    broker.settings = _settings(papers, ports)
    broker.settings["sasl.oauthbearer.jwks.endpoint.url"] = f"file://{papers.keys}"
    with broker, Admin(broker.bootstrap_servers) as admin:
        for mechanism in _SCRAM:
            info = ScramCredentialInfo(mechanism)
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD)])
        yield Doors(ports, papers)


class _Kafka(KafkaPeer):
    format_options = tuple(
        part
        for mechanism in _SCRAM
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
    )


@contextmanager
def kafka_doors(folder: Path, papers: Papers) -> Iterator[Doors]:
    """Apache Kafka. Raises `PeerUnavailable`."""
    broker = _Kafka(folder / "kafka")
    url = f"file://{papers.keys}"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"
    broker.jvm = ("-Xmx384M", "-Xms384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", allowed)
    ports = _ports(broker.port)
    settings = _settings(papers, ports)
    settings["listeners"] += f",CONTROLLER://{HOST}:{broker.voters[broker.node_id]}"
    settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    for listener in ("sasl", "sasltls"):
        prefix = f"listener.name.{listener}.oauthbearer"
        handler = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        settings[f"{prefix}.sasl.server.callback.handler.class"] = handler
        settings[f"{prefix}.sasl.oauthbearer.jwks.endpoint.url"] = url
    broker.settings = settings
    with broker:
        yield Doors(ports, papers)
