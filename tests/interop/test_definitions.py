"""Our tables of errors and keys, compared with Apache Kafka's own definitions.

They are those of the release that `bench/peer/pom.xml` names: a newer one fails here first, with
the names of what is new in it (CONTRIBUTING.md).
"""

import subprocess
from pathlib import Path

import pytest

from bench.peer import java
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.core.kafka_keys import PASSED_OVER, refusal

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).with_name("java") / "Definitions.java"


@pytest.fixture(scope="module")
def defined(java_class_path: str) -> list[list[str]]:
    """The lines that Definitions.java prints, in words."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", java_class_path, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_the_error_codes_are_kafkas(defined: list[list[str]]) -> None:
    theirs = {(int(w[1]), w[2].lower(), w[3] == "retriable") for w in of("error", defined)}
    assert {(code.value, code.name, code.retriable) for code in ErrorCode} == theirs


def test_each_key_of_kafkas_is_known(defined: list[list[str]]) -> None:
    known = BROKER_KEYS.keys() | set(PASSED_OVER)
    brokers = {words[1] for words in of("broker", defined)} - known
    assert [name for name in sorted(brokers) if refusal(name) is None] == []
    topics = {words[1] for words in of("topic", defined)}
    assert sorted(topics - TOPIC_KEYS.keys() - UNSUPPORTED_TOPIC_KEYS) == []


def of(kind: str, defined: list[list[str]]) -> list[list[str]]:
    """The lines of one kind."""
    return [words for words in defined if words[0] == kind]
