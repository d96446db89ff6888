"""Apache's Java client: 3.9.2 (transactions version 1), 4.3.1 and the peer's own (version 2).

Its checks are in `java/Checks.java` and run in one JVM for each version; each is a test here.
"""

import itertools
import re
import subprocess
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.peer import PeerUnavailable, client_jars, jars, java

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).with_name("java") / "Checks.java"
CLASS_PATHS: dict[str, Callable[[], str]] = {
    "3.9.2": partial(client_jars, "3.9.2"),
    "4.3.1": partial(client_jars, "4.3.1"),
    "4.4.0": jars,
}
VERSIONS = [*(pytest.param(old, marks=pytest.mark.soak) for old in ("3.9.2", "4.3.1")), "4.4.0"]
"""In `make test` the newest one: each has a JVM of its own."""
RUN_TIMEOUT_S = 150
CHECKS = re.findall(r'checks\.put\("([a-z-]+)"(?! \+)', SOURCE.read_text())
CODECS = [f"codec-{name}" for name in ("none", "gzip", "snappy", "lz4", "zstd")]


class Outcome:
    """What one JVM printed, taken apart on demand; the JVM runs when the first test asks."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.printed: dict[str, str] = {}

    def of(self, version: str) -> str:
        if version not in self.printed:
            self.printed[version] = self.run(version)
        return self.printed[version]

    def run(self, version: str) -> str:
        try:
            class_path = CLASS_PATHS[version]()
        except PeerUnavailable as reason:
            pytest.skip(f"the Java client {version} cannot be had: {reason}")
        # One compiler tier: the checks are short, so the JVM's start is what costs.
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCE)]
        done = subprocess.run(
            [*command, self.bootstrap_servers, uuid.uuid4().hex[:8]],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def outcome(bootstrap_servers: str) -> Outcome:
    return Outcome(bootstrap_servers)


@pytest.mark.timeout(RUN_TIMEOUT_S + 30)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("check", [*CODECS, *CHECKS])
def test_the_java_client(outcome: Outcome, version: str, check: str) -> None:
    lines = outcome.of(version).splitlines()
    verdicts = [line for line in lines if re.match(rf"(ok|failed) {check}(:|$)", line)]
    assert verdicts == [f"ok {check}"]


@pytest.mark.timeout(RUN_TIMEOUT_S + 30)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_epoch_rises_with_each_transaction_of_version_2_alone(
    outcome: Outcome, version: str
) -> None:
    """EndTxn v5 answers with the next epoch (KIP-890); older clients keep theirs."""
    (line,) = re.findall(r"^epochs \[(.*)\]$", outcome.of(version), re.MULTILINE)
    epochs = [int(each) for each in line.split(", ")]
    step = 0 if version == "3.9.2" else 1
    assert [later - earlier for earlier, later in itertools.pairwise(epochs)] == [
        step,
        step,
        step,
    ]
