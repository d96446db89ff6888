"""One Apache Kafka with a listener per way in: TLS, TLS both ways, SASL with and without TLS."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority
from tests.support.peer.child import free_port
from tests.support.peer.kafka import KafkaPeer

USER, PASSWORD = "alice", "alice-geheim"
LISTENERS = {"TLS": "SSL", "MTLS": "SSL", "SASLTLS": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 1_500
"""Lifetime of a PLAIN session on the listener without TLS."""

_SECURITY = "org.apache.kafka.common.security"
_LOGINS = {
    "PLAIN": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule required;",
    "OAUTHBEARER": (
        f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}


class SecureKafka(KafkaPeer):
    """See the module's docstring. `address(listener)` and `settings_for(...)` lead a client in."""

    jvm = ("-Xmx384M", "-Xms384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    format_options = tuple(
        part
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.authority = Authority.make()
        self.own = self.authority.sign("client").write(folder / "client.pem")
        (folder / "ca.pem").write_text(self.authority.pem)
        broker = self.authority.sign("broker", "127.0.0.1").write(folder / "broker.pem")
        self._ports = {name: free_port() for name in LISTENERS}
        addresses = {"PLAINTEXT": self.port, **self._ports}
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in addresses.items()]
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        self.settings = {
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{self.voters[1]}"]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl.plain.connections.max.reauth.ms": str(SESSION_MS),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **{
                f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": login
                for listener in ("sasl", "sasltls")
                for mechanism, login in _LOGINS.items()
            },
        }

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def settings_for(self, listener: str, mechanism: str | None = None) -> dict[str, Any]:
        """A client's settings by Kafka's names."""
        given: dict[str, Any] = {"security.protocol": LISTENERS[listener]}
        if "TLS" in listener:
            given["ssl.truststore.type"] = "PEM"
            given["ssl.truststore.location"] = str(self.folder / "ca.pem")
        if listener == "MTLS":
            given["ssl.keystore.type"] = "PEM"
            given["ssl.keystore.location"] = self.own
        if mechanism is not None:
            given["sasl.mechanism"] = mechanism
            given |= login_of(mechanism)
        return given


def login_of(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Who we are, as a login line or (for a token) by our own name."""
    if mechanism == "OAUTHBEARER":
        return {"sasl.oauthbearer.token": unsecured_token()}
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    line = f'{_SECURITY}.{module} required username="{USER}" password="{password}";'
    return {"sasl.jaas.config": line}


def unsecured_token(life_s: int = 600) -> str:
    """A token that Kafka's default validator takes: it is not signed."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now_s, "exp": now_s + life_s})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join(text.rstrip("=") for text in texts) + "."
