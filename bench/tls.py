"""The two systems over TLS, with one certificate (EC, P-256).

Both come as they are, but for a listener with TLS beside the plain one that says when they are
ready. Apache Kafka does TLS in the JVM (JSSE), we in OpenSSL through Python's `ssl`; the client is
librdkafka in either case, which takes part in the cost on the same cores.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bench.systems import NO_SETTINGS, Kafka, Oncelog
from tests.support.certificates import Authority, Certificate
from tests.support.peer.child import free_port

HOST = "127.0.0.1"


@cache
def _certificates() -> tuple[Authority, Certificate]:
    authority = Authority.make("bench authority")
    return authority, authority.sign("broker", HOST)


class Listener:
    """A listener with TLS, beside the plain one at which a broker is seen to be ready."""

    def __init__(self, folder: Path, plain: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority, own = _certificates()
        self.address = f"{HOST}:{free_port()}"
        self.client_settings = {"security.protocol": "SSL", "ssl.ca.pem": authority.pem}
        self.names = f"PLAINTEXT://{plain},SSL://{self.address}"
        self.settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own.write(folder / "broker.pem"),
        }


class TlsOncelog(Oncelog):
    """Ours; clients come over TLS."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        super().__init__(folder, settings)
        self._tls = Listener(folder, super().bootstrap_servers)
        self.settings |= self._tls.settings | {"listeners": self._tls.names}
        self.client_settings = self._tls.client_settings

    @property
    def bootstrap_servers(self) -> str:
        return self._tls.address


class TlsKafka(Kafka):
    """Apache Kafka; clients come over TLS."""

    protocol = "SSL"

    @property
    def bootstrap_servers(self) -> str:
        return self._tls.address

    def prepare(self) -> None:
        """Write the configuration, with that listener."""
        self._tls = Listener(self.folder, super().bootstrap_servers)
        self.client_settings = self._tls.client_settings
        controller = f"CONTROLLER://{HOST}:{self.voters[self.node_id]}"
        self.settings |= self._tls.settings | {
            "listeners": f"{self._tls.names},{controller}",
            "advertised.listeners": self._tls.names,
            "listener.security.protocol.map": (
                f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:{self.protocol}"
            ),
        }
        super().prepare()
