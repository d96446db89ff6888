"""librdkafka's words: the code of the first error that it tells, and its text.

That all brokers are down is said beside the cause; where there is no other error, the cause is in
the log.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka

WAIT_S = 8.0
ALL_DOWN = confluent_kafka.KafkaError._ALL_BROKERS_DOWN


def settings(way: dict[str, Any]) -> dict[str, Any]:
    given = {"bootstrap.servers": way["address"], "security.protocol": way["protocol"]}
    if way["authority"]:
        given["ssl.ca.location"] = way["authority"]
    if way["own"]:
        given |= {"ssl.certificate.location": way["own"], "ssl.key.location": way["own"]}
    if way["mechanism"]:
        given["sasl.mechanisms"] = way["mechanism"]
    if way["mechanism"] == "OAUTHBEARER":
        given["oauth_cb"] = lambda _: (way["secret"], time.time() + 300)
    elif way["mechanism"]:
        given |= {"sasl.username": way["user"], "sasl.password": way["secret"]}
    return given


class Lines(logging.Handler):
    """Keeps the lines about failures."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        kind, _, line = record.getMessage().partition(" [")
        if kind == "FAIL":
            self.failures.append(line.partition("]: ")[2])


def said(way: dict[str, Any]) -> str:
    errors: list[confluent_kafka.KafkaError] = []
    lines = Lines()
    logger = logging.Logger(way["address"])
    logger.addHandler(lines)
    client = confluent_kafka.Producer(
        {**settings(way), "error_cb": errors.append, "allow.auto.create.topics": 0}, logger=logger
    )
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        client.poll(0.05)
        causes = [error for error in errors if error.code() != ALL_DOWN]
        if causes:
            return f"{causes[0].name()}: {causes[0].str()}"
        if errors and lines.failures:
            return f"{errors[0].name()}: {lines.failures[0]}"
        try:
            client.list_topics(timeout=0.2)
            return "ok"
        except confluent_kafka.KafkaException:
            """It has told no error yet."""
    return "silence"


def main() -> None:
    ways: dict[str, dict[str, Any]] = json.load(sys.stdin)
    with ThreadPoolExecutor(len(ways)) as threads:
        found = dict(zip(ways, threads.map(said, ways.values()), strict=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
