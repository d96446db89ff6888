"""What has to be there before a block can be carried out: data, damage, an open transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager
from pathlib import Path
from typing import Final

from oncelog import Admin, EmbeddedBroker, NewTopic, Producer
from tests.support.stock_files import properties

__all__ = ["SCENES", "Scene"]

Scene = Callable[[Path], AbstractContextManager[dict[str, str]]]
"""Makes files in a folder, and yields the environment of the block."""

BATCH_BYTES: Final = 80
RECORDS: Final = 10
DAMAGED: Final = 7


@contextmanager
def stock_file(folder: Path) -> Iterator[dict[str, str]]:
    """Apache Kafka's server.properties."""
    (folder / "server.properties").write_text(properties("4.4"))
    yield {}


@contextmanager
def open_transaction(folder: Path) -> Iterator[dict[str, str]]:
    """A broker on which `import-7` has written one record to orders-1, and goes on."""
    with EmbeddedBroker(folder / "open") as broker, asyncio.Runner() as runner:
        producer = runner.run(_begin(broker.bootstrap_servers))
        yield {"ONCELOG_BOOTSTRAP_SERVER": broker.bootstrap_servers}
        runner.run(_end(producer))


async def _begin(servers: str) -> Producer:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic("orders", 4)])
    producer = Producer(servers, transactional_id="import-7")
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("orders", b"7 plums", partition=1)
    return producer


async def _end(producer: Producer) -> None:
    await producer.abort_transaction()
    await producer.close()


@contextmanager
def damaged_folder(folder: Path) -> Iterator[dict[str, str]]:
    """A stopped broker's folder: a committed transaction in `mixed`, a bad batch in `plain`."""
    # The document's own broker runs in `data` of the folder.
    data = folder / "damaged" / "data"
    data.parent.mkdir()
    with EmbeddedBroker(data) as broker:
        asyncio.run(_fill(broker.bootstrap_servers))
    log = data / "plain-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[DAMAGED * BATCH_BYTES + BATCH_BYTES - 1] ^= 1
    log.write_bytes(content)
    with chdir(data.parent):
        yield {}


async def _fill(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic("plain", 1), NewTopic("mixed", 1)])
    async with Producer(servers) as producer:
        for number in range(RECORDS):
            await producer.send("plain", b"record %d...." % number)
    async with Producer(servers, transactional_id="mixer") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(2):
            await producer.send("mixed", b"record %d" % number)
        await producer.commit_transaction()


SCENES: Final[dict[tuple[str, str], Scene]] = {
    ("docs/cli.md", "oncelog serve --config"): stock_file,
    ("docs/cli.md", "$ oncelog transactions abort"): open_transaction,
    ("docs/cli.md", "$ oncelog log dump"): damaged_folder,
}
"""(document, how the block begins) -> its scene."""
