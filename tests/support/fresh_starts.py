"""Whether eight clients that use a fresh broker at once are served at their first try.

``python -m tests.support.fresh_starts 50`` starts 50 brokers, each on an empty folder. Each client
asks for the coordinator of one group and of a transactional id, and for the leader of a topic that
does not exist yet, and sends its first request to the broker named as soon as it has the answer.
Prints how many starts served all, and what the others answered.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.runtime.network import SystemNetwork
from tests.support.broker import BrokerProcess

__all__ = ["FirstTries", "first_tries"]

STARTS_COUNT: Final = 50
CLIENTS_COUNT: Final = 8
APART_MS: Final = 5
"""Pause between the first requests of two clients."""
TIMEOUT_MS: Final = 30_000
TOPIC: Final = "orders"
GROUP, TRANSACTION = 0, 1


@dataclass(slots=True)
class FirstTries:
    """What the clients of one broker got for their first requests."""

    refusals: Counter[str] = field(default_factory=Counter)
    last_ms: float = 0.0
    """From the first request until the last client had all its answers."""


Try = Callable[[Connection, int], Awaitable[ErrorCode]]


async def _group(connection: Connection, _number: int) -> ErrorCode:
    asked = requests.find_coordinator_request(GROUP, "g")
    found = await connection.request(ApiKey.FIND_COORDINATOR, asked)
    error = requests.coordinator_of(found)[0]
    if error is not ErrorCode.none:
        return error
    fetched = await connection.request(
        ApiKey.OFFSET_FETCH,
        requests.offset_fetch_request("g", None, require_stable=True),
        at_most=requests.OFFSETS_BY_NAME_MAX,
    )
    return requests.offsets_of(fetched)[0]


async def _transaction(connection: Connection, number: int) -> ErrorCode:
    asked = requests.find_coordinator_request(TRANSACTION, f"t{number}")
    found = await connection.request(ApiKey.FIND_COORDINATOR, asked)
    error = requests.coordinator_of(found)[0]
    if error is not ErrorCode.none:
        return error
    made = await connection.request(
        ApiKey.INIT_PRODUCER_ID,
        requests.init_producer_id_request(
            f"t{number}", TIMEOUT_MS, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        ),
    )
    return made.error_code


async def _leader(connection: Connection, _number: int) -> ErrorCode:
    told = await connection.request(
        ApiKey.METADATA, requests.metadata_request([TOPIC], create=True)
    )
    ((_, error, _description),) = requests.topics_of(told)
    if error is not ErrorCode.none:
        return error
    offsets = await connection.request(
        ApiKey.LIST_OFFSETS,
        requests.list_offsets_request({TopicPartition(TOPIC, 0): requests.LATEST}, 0, TIMEOUT_MS),
    )
    return offsets.topics[0].partitions[0].error_code


TRIES: Final[tuple[Try, ...]] = (_group, _transaction, _leader)


async def first_tries(port: int) -> FirstTries:
    """Have the clients use a broker that nobody has used before."""
    found = FirstTries()
    network = SystemNetwork()

    async def open_connection(number: int) -> Connection:
        return await Connection.open(
            network,
            "127.0.0.1",
            port,
            client_id=f"client-{number}",
            request_timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=TIMEOUT_MS,
        )

    async def use(number: int, connection: Connection, attempt: Try) -> None:
        await asyncio.sleep(number * APART_MS / 1000)
        error = await attempt(connection, number)
        if error is not ErrorCode.none:
            found.refusals[f"{attempt.__name__[1:]}: {error.name.upper()}"] += 1

    opened = [
        (number, await open_connection(number), attempt)
        for number in range(CLIENTS_COUNT)
        for attempt in TRIES
    ]
    begun_s = time.monotonic()
    try:
        await asyncio.gather(*(use(*one) for one in opened))
    finally:
        for _, connection, _ in opened:
            connection.close()
    found.last_ms = (time.monotonic() - begun_s) * 1000
    return found


def run(count: int) -> int:
    """Start so many brokers, print the result, and return how many refused a first request."""
    refusals: Counter[str] = Counter()
    took_ms = []
    refused_count = 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as temporary, BrokerProcess(Path(temporary)) as broker:
            found = asyncio.run(first_tries(broker.port))
        refused_count += bool(found.refusals)
        refusals += found.refusals
        took_ms.append(found.last_ms)
    took_ms.sort()
    print(f"{count - refused_count} of {count} starts served {CLIENTS_COUNT} clients at once")
    print(f"until all were served: median {took_ms[count // 2]:.0f} ms, most {took_ms[-1]:.0f} ms")
    for refusal, times in sorted(refusals.items()):
        print(f"{times} times {refusal}")
    return refused_count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.support.fresh_starts"
    )
    parser.add_argument("count", type=int, nargs="?", default=STARTS_COUNT)
    raise SystemExit(1 if run(parser.parse_args().count) else 0)
