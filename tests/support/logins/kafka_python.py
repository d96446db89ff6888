"""kafka-python's words: the error that it raises, and why its first connection failed."""

from __future__ import annotations

import json
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.support.logins.keywords import login_keywords


class Lines(logging.Handler):
    """Keeps the line about the first connection of each thread: one case runs in each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        before, _, reason = record.getMessage().partition(" failed: ")
        if before.startswith("Bootstrap connection") and not hasattr(self.first, "line"):
            self.first.line = reason.rpartition(" (backoff")[0]


LINES = Lines()


class Token(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def settings(way: dict[str, Any]) -> dict[str, Any]:
    given = login_keywords(way, Token)
    if way["authority"]:
        given["ssl_cafile"] = way["authority"]
    if way["own"]:
        given |= {"ssl_certfile": way["own"], "ssl_keyfile": way["own"]}
    return given


def said(way: dict[str, Any]) -> str:
    try:
        KafkaProducer(**settings(way), bootstrap_timeout_ms=2_000).close()
    except Exception as error:  # noqa: BLE001 - whatever it raises is what it says
        return f"{type(error).__name__}: {getattr(LINES.first, 'line', error)}"
    return "ok"


def main() -> None:
    ways: dict[str, dict[str, Any]] = json.load(sys.stdin)
    logger = logging.getLogger("kafka")
    logger.addHandler(LINES)
    logger.propagate = False
    with ThreadPoolExecutor(len(ways)) as threads:
        found = dict(zip(ways, threads.map(said, ways.values()), strict=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
