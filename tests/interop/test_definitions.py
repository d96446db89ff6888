"""Our tables of versions, errors and keys, compared with Apache Kafka's own definitions.

They are those of the release that `tests/support/peer/pom.xml` names: a newer one fails here first,
with the names of what is new in it (CONTRIBUTING.md).
"""

import json
import subprocess
from pathlib import Path

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.core.kafka_keys import PASSED_OVER, refusal
from oncelog.protocol.api import ADVERTISED
from tests.support.peer import java

pytestmark = [pytest.mark.interop, pytest.mark.slow]

JAVA = Path(__file__).with_name("java")
GOLDEN = Path(__file__).parents[1] / "unit/protocol/golden/messages.json"


def printed(program: str, class_path: str) -> list[list[str]]:
    """The lines that a program of ours prints, in words."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(JAVA / program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def defined(java_class_path: str) -> list[list[str]]:
    """What Kafka's classes define."""
    return printed("Definitions.java", java_class_path)


def test_the_versions_of_apis_are_kafkas(defined: list[list[str]]) -> None:
    theirs = {int(words[1]): (int(words[2]), int(words[3])) for words in of("api", defined)}
    ours = {api: tuple(versions) for api, versions in ADVERTISED.items()}
    assert ours == {api: theirs[api] for api in ours}


def test_what_only_the_controller_does_is_what_kafkas_brokers_forward(
    defined: list[list[str]],
) -> None:
    theirs = {int(words[1]) for words in of("api", defined) if words[4] == "forwarded"}
    assert {api for api, served in HANDLERS.items() if served.is_controller_only} == (
        theirs & HANDLERS.keys()
    )


def test_the_error_codes_are_kafkas(defined: list[list[str]]) -> None:
    theirs = {(int(w[1]), w[2].lower(), w[3] == "retriable") for w in of("error", defined)}
    assert {(code.value, code.name, code.retriable) for code in ErrorCode} == theirs


def test_each_key_of_kafkas_is_known(defined: list[list[str]]) -> None:
    known = BROKER_KEYS.keys() | set(PASSED_OVER)
    brokers = {words[1] for words in of("broker", defined)} - known
    assert [name for name in sorted(brokers) if refusal(name) is None] == []
    topics = {words[1] for words in of("topic", defined)}
    assert sorted(topics - TOPIC_KEYS.keys() - UNSUPPORTED_TOPIC_KEYS) == []


def test_the_newest_messages_are_written_as_before(java_class_path: str) -> None:
    """The bytes that judge the versions which kio does not know."""
    golden = json.loads(GOLDEN.read_text())
    found: dict[tuple[str, str, str], list[str]] = {}
    for api, kind, version, text in printed("Messages.java", java_class_path):
        found.setdefault((api, kind, version), []).append(text)
    assert found == {
        (api, kind, version): golden[api][kind][version] for api, kind, version in found
    }


def of(kind: str, defined: list[list[str]]) -> list[list[str]]:
    """The lines of one kind."""
    return [words for words in defined if words[0] == kind]
