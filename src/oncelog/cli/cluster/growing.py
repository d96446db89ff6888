"""``oncelog cluster grow-internal``: the internal topics get the replicas that they should have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.cluster.moves import grown
from oncelog.cli.cluster.moving import LOOK_INTERVAL_S, ask, look
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import print_text, warn
from oncelog.cli.tool import ToolCommand, run
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from oncelog.client import Admin

__all__ = ["command"]

OFFSETS_MIN_ISR: Final = 2
"""Of the offsets' topic, for which Kafka has no key; as in `oncelog.controller.topics`."""
MIN_ISR: Final = "min.insync.replicas"


@click.command("grow-internal", cls=ToolCommand)
@click.option(
    "--replication-factor",
    "factor",
    type=click.IntRange(1),
    metavar="N",
    help="How many replicas; without it as the brokers are configured.",
)
@connection_options
def command(factor: int | None, servers: str) -> None:
    """Give the topics of transactions and groups the replicas that they should have.

    They keep the number that they were made with, such as one of a broker that was alone.
    """

    async def work() -> None:
        async with administrator(servers, "cluster") as admin:
            for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
                await _grow(admin, topic, factor)

    run(work, servers)


async def _grow(admin: Admin, topic: str, asked: int | None) -> None:
    if topic not in await admin.list_topics():
        print_text(f"{topic} is not there yet: it gets its replicas when it is first used")
        return
    seen = await look(admin)
    wanted, min_isr = await _configured(admin, seen.nodes[0].node_id, topic)
    wanted = asked or wanted
    factor = min(wanted, len(seen.nodes))
    if factor < wanted:
        warn(f"{topic} gets {factor} replicas, not {wanted}: there are not more brokers")
    plan = grown(seen.partitions, seen.nodes, topic, factor)
    await ask(admin, plan)
    while True:
        seen = await look(admin)
        if topic not in {label.topic for label in seen.removing}:
            break
        await asyncio.sleep(LOOK_INTERVAL_S)
    count = min(len(one.replicas) for one in seen.partitions if one.label.topic == topic)
    print_text(f"{topic} has {count} replicas; {len(plan)} partitions have got more")
    await _raise_min_isr(admin, topic, min(min_isr, count))


async def _raise_min_isr(admin: Admin, topic: str, wanted: int) -> None:
    """Set it where the topic was made with less, since it had fewer replicas."""
    entry = (await admin.describe_configs([topic]))[topic].get(MIN_ISR)
    if entry is not None and int(entry.value or 1) < wanted:
        await admin.incremental_alter_configs(topic, {MIN_ISR: str(wanted)})
        print_text(f"{topic}: {MIN_ISR}={wanted}")


async def _configured(admin: Admin, broker_id: int, topic: str) -> tuple[int, int]:
    """Return the replication factor and the smallest ISR that a broker's configs give a topic."""
    node = str(broker_id)
    configs = (await admin.describe_configs([node], "broker"))[node]

    def number(key: str) -> int:
        return int(configs[key].value or 1)

    if topic == CONSUMER_OFFSETS_TOPIC:
        return number("offsets.topic.replication.factor"), OFFSETS_MIN_ISR
    factor = number("transaction.state.log.replication.factor")
    return factor, number("transaction.state.log.min.isr")
