"""aiokafka's words: the error that it raises, and the line that it logs about the broker."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import sys
from contextvars import ContextVar
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from tests.support.logins.keywords import login_keywords

LOGGED: ContextVar[list[str]] = ContextVar("logged")


class Lines(logging.Handler):
    """Gives each line to the case in whose task it is written."""

    def emit(self, record: logging.LogRecord) -> None:
        LOGGED.get([]).append(record.getMessage())


class Token(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def settings(way: dict[str, Any]) -> dict[str, Any]:
    given = login_keywords(way, Token)
    if way["authority"]:
        given["ssl_context"] = context = ssl.create_default_context(cafile=way["authority"])
        if way["own"]:
            context.load_cert_chain(way["own"])
    return given


async def said(way: dict[str, Any]) -> str:
    lines: list[str] = []
    LOGGED.set(lines)
    producer = AIOKafkaProducer(**settings(way), request_timeout_ms=3_000)
    try:
        await producer.start()
        # It may take itself for connected: a refused token is told by the next response only.
        async with asyncio.timeout(3):
            brokers = (await producer.client.fetch_all_metadata()).brokers()
        if not brokers:
            return " | ".join(["no brokers", *lines])
    except Exception as error:  # noqa: BLE001 - whatever it raises is what it says
        return " | ".join([f"{type(error).__name__}: {error}", *lines])
    finally:
        await producer.stop()
    return "ok"


async def main() -> None:
    logger = logging.getLogger("aiokafka")
    logger.addHandler(Lines())
    logger.propagate = False
    ways: dict[str, dict[str, Any]] = json.load(sys.stdin)
    found = await asyncio.gather(*(asyncio.create_task(said(way)) for way in ways.values()))
    print(json.dumps(dict(zip(ways, found, strict=True))))


if __name__ == "__main__":
    asyncio.run(main())
