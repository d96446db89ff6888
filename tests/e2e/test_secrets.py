"""What a broker with users, keys and tokens says and shows of itself has no secret in it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.certificates import Authority
from tests.support.peer.child import BrokerChild, free_port

pytestmark = pytest.mark.slow

KEY_PASSWORD, PLAIN, SCRAM, NEW, WRONG, ALTERED = (
    f"{name}-geheim-7f3a" for name in ("key", "plain", "scram", "new", "wrong", "altered")
)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
READY_TIMEOUT_S = 30


class Broker(BrokerChild):
    """A process with every mechanism, that logs all that it ever logs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secure, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.authority = Authority.make()
        self.own = self.authority.sign("broker", "127.0.0.1")
        self.issuer = rsa.generate_private_key(65537, 2048)
        (folder / "authority.pem").write_text(self.authority.pem)
        self.write("server", self.settings())

    def settings(self) -> dict[str, str]:
        keys = self.folder / "keys.json"
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.issuer.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
        return {
            "log.dirs": str(self.folder / "data"),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},SASL_SSL://{self.secure}",
            "ssl.keystore.location": self.own.write(self.folder / "broker.pem", KEY_PASSWORD),
            "ssl.key.password": KEY_PASSWORD,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.allow.unverified.audience": "true",
            "sasl.oauthbearer.allow.unverified.issuer": "true",
            JAAS: f'{MODULE} required user_app="{PLAIN}";',
            "oncelog.metrics.address": self.metrics,
        }

    def write(self, name: str, settings: dict[str, str]) -> str:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def start(self) -> None:
        config = str(self.folder / "server.properties")
        command = [*ONCELOG, "serve", "--config", config, "--log-level", "debug"]
        self.launch(command, self.folder / "broker.log", READY_TIMEOUT_S)

    def client(self, name: str, mechanism: str, **login: str) -> tuple[str, ...]:
        """The options of a command that logs in so."""
        given = {
            "bootstrap.servers": self.secure,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.folder / "authority.pem"),
            "sasl.mechanism": mechanism,
            **{f"sasl.{key}": value for key, value in login.items()},
        }
        return "--command-config", self.write(name, given), "--log-level", "debug"

    def token(self) -> str:
        claims = {"sub": "app", "exp": time.time() + 600}
        return jwt.encode(claims, self.issuer, "RS256", {"kid": "one"})


ONCELOG = (sys.executable, "-m", "oncelog")


def said(*arguments: str, given: str = "") -> str:
    """All that a command prints, whether it succeeds or not."""
    done = subprocess.run(
        [*ONCELOG, *arguments], input=given, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    said("users", "add", "alice", "--data-dir", str(tmp_path / "data"), given=f"{SCRAM}\n")
    try:
        made.start()
        yield made
    finally:
        made.__exit__(None, None, None)


def forms(secret: str) -> set[bytes]:
    """What a secret looks like in a text, in bytes that were printed, and encoded."""
    plain = secret.encode()
    return {plain, base64.b64encode(plain).rstrip(b"=")[:-1], plain.hex().encode()}


def test_secrets_are_found_in_nothing_that_a_broker_or_a_command_says(broker: Broker) -> None:
    token = broker.token()
    logins = {
        "plain": broker.client("plain", "PLAIN", username="app", password=PLAIN),
        "scram": broker.client("scram", "SCRAM-SHA-512", username="alice", password=SCRAM),
        "token": broker.client("token", "OAUTHBEARER", **{"oauthbearer.token": token}),
    }
    strangers = {
        "plain": broker.client("wrong-1", "PLAIN", username="app", password=WRONG),
        "scram": broker.client("wrong-2", "SCRAM-SHA-512", username="alice", password=WRONG),
        "token": broker.client("wrong-3", "OAUTHBEARER", **{"oauthbearer.token": f"{token}x"}),
    }
    plain = logins["plain"]
    shown = {f"login by {name}": said("topics", "list", *login) for name, login in logins.items()}
    refused = {
        f"refusal by {name}": said("topics", "list", *login) for name, login in strangers.items()
    }
    assert not any("Error" in text for text in shown.values()), shown
    assert all("Error: 127.0.0.1:" in text for text in refused.values()), refused
    bad = {**broker.settings(), JAAS: f'{MODULE} required user_app="{ALTERED};'}
    altered = f'{JAAS}={MODULE} required user_app="{ALTERED}";'
    shown |= refused | {
        "configs": said("configs", "describe", "broker", "1", "--all", *plain),
        "alter": said("configs", "alter", "broker", "1", "--config", altered, *plain),
        "add": said("users", "add", "bob", *plain, given=f"{NEW}\n"),
        "users": said("users", "list", "--json", *plain),
        "doctor": said("doctor", *plain),
        "bad value": said("serve", "--config", broker.write("bad", bad)),
        "bad key": said("topics", "list", "-X", f"sasl.passwort={ALTERED}"),
        "metrics": urllib.request.urlopen(f"http://{broker.metrics}/metrics").read().decode(),
    }
    assert "ssl.key.password" in shown["configs"]
    assert "bob" in shown["users"]
    assert JAAS in shown["alter"]
    assert JAAS in shown["bad value"]
    assert "failed_authentication" in shown["metrics"]
    assert broker.stop() == 0
    shown["log"] = (broker.folder / "broker.log").read_text()
    assert "Failed authentication" in shown["log"]
    secrets = {KEY_PASSWORD, PLAIN, SCRAM, NEW, WRONG, ALTERED, *token.split(".")[1:]}
    # Of the key each line of its PEM would tell.
    secrets |= set(broker.own.key_pem().splitlines()[1:-1])
    found = {
        (place, secret)
        for place, text in shown.items()
        for secret in secrets
        if any(form in text.encode() for form in forms(secret))
    }
    assert found == set()
    kept = [path for path in (broker.folder / "data").rglob("*") if path.is_file()]
    assert [path for path in kept for each in secrets if each.encode() in path.read_bytes()] == []
