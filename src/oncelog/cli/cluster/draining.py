"""``oncelog cluster drain``: moves all replicas from a broker to others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.cluster.moves import drained
from oncelog.cli.cluster.moving import LOOK_INTERVAL_S, ask, look
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import print_text, say
from oncelog.cli.tool import Failure, ToolCommand, run
from oncelog.core.ids import TopicPartition

if TYPE_CHECKING:
    from oncelog.client import Admin

__all__ = ["command"]

NAMED_COUNT_MAX: Final = 5


@click.command("drain", cls=ToolCommand)
@click.argument("broker_id", metavar="ID", type=click.IntRange(0))
@click.option(
    "--fewer-replicas", is_flag=True, help="Give up replicas that no other broker can take."
)
@connection_options
def command(broker_id: int, fewer_replicas: bool, servers: str) -> None:
    """Move all replicas from a broker to others, and return once it has none.

    The broker may run or be away; it is not stopped. Interrupt and repeat the command as you like.
    """

    async def work() -> int:
        async with administrator(servers, "cluster") as admin:
            return await _drain(admin, broker_id, may_shrink=fewer_replicas)

    count = run(work, servers)
    print_text(f"broker {broker_id} has no replicas; {count} have left it")
    say(f"stop it, then: oncelog cluster forget {broker_id}")


async def _drain(admin: Admin, broker_id: int, *, may_shrink: bool) -> int:
    asked: dict[TopicPartition, tuple[int, ...]] = {}
    left: set[TopicPartition] = set()
    while True:
        seen = await look(admin)
        plan, stuck = drained(seen.partitions, seen.nodes, broker_id, may_shrink=may_shrink)
        if stuck:
            instead = "" if may_shrink else ", or give up replicas with --fewer-replicas"
            raise Failure(f"no other broker can take {_listed(stuck)}: add a broker{instead}")
        # Metadata may be a moment old: a move that is done already is asked for as it was.
        plan = {label: asked.get(label, replicas) for label, replicas in plan.items()}
        await ask(admin, plan)
        asked |= plan
        going = {label for label, removing in seen.removing.items() if broker_id in removing}
        left |= going | plan.keys()
        if not plan and not going:
            if not left and broker_id not in (node.node_id for node in seen.nodes):
                raise Failure(f"there is no broker {broker_id}, and no replica is assigned to it")
            return len(left)
        await asyncio.sleep(LOOK_INTERVAL_S)


def _listed(labels: Sequence[TopicPartition]) -> str:
    named = ", ".join(map(str, labels[:NAMED_COUNT_MAX]))
    more = len(labels) - NAMED_COUNT_MAX
    return f"{named} and {more} more" if more > 0 else named
