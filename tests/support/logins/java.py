"""What Apache's Java client says: one JVM of a version runs all cases."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.java_program import compiled
from tests.support.logins.brokers import Doors
from tests.support.logins.cases import CASES
from tests.support.peer.kafka import java

__all__ = ["java_outcomes"]

SOURCES: Final = Path(__file__).parents[2] / "interop" / "java"
_SECURITY: Final = "org.apache.kafka.common.security"
_TIMEOUT_S: Final = 120


def java_outcomes(class_path: str, doors: Doors, names: list[str]) -> dict[str, str]:
    """By case what the client says. Raises `PeerUnavailable`."""
    path = f"{compiled('Logins', SOURCES, class_path)}:{class_path}"
    lines = [f"{name}\t{key}\t{value}\n" for name in names for key, value in _settings(doors, name)]
    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-cp", path, "Logins"],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pairs = (line.partition("\t") for line in done.stdout.splitlines())
    return {name: said for name, _, said in pairs}


def _settings(doors: Doors, name: str) -> Iterator[tuple[str, str]]:
    case, papers = CASES[name], doors.papers
    yield "bootstrap.servers", doors.address(case.listener)
    yield "security.protocol", case.protocol
    if case.has_tls:
        yield "ssl.truststore.type", "PEM"
        yield "ssl.truststore.location", papers.authority(case)
    if case.shows:
        yield "ssl.keystore.type", "PEM"
        yield "ssl.keystore.location", papers.file(case.shows)
    if not case.mechanism:
        return
    yield "sasl.mechanism", case.mechanism
    secret = papers.secret(case)
    if case.mechanism == "OAUTHBEARER":
        module = f'oauthbearer.OAuthBearerLoginModule required token="{secret}";'
        yield "sasl.login.callback.handler.class", "Logins$Tokens"
    else:
        kind = "plain.Plain" if case.mechanism == "PLAIN" else "scram.Scram"
        module = f'{kind}LoginModule required username="{case.user}" password="{secret}";'
    yield "sasl.jaas.config", f"{_SECURITY}.{module}"
