"""``oncelog cluster forget``: nothing waits any longer for a broker that is gone for good."""

from __future__ import annotations

import click

from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import print_text
from oncelog.cli.tool import ToolCommand, run

__all__ = ["command"]


@click.command("forget", cls=ToolCommand)
@click.argument("broker_id", metavar="ID", type=click.IntRange(0))
@connection_options
def command(broker_id: int, servers: str) -> None:
    """Forget a broker that is gone for good: deletions and partitions wait for it no longer.

    It is refused while the broker is registered, and while it alone may have records of a
    partition. Its replicas keep their places: a new broker with this id fills them again.
    """

    async def work() -> None:
        async with administrator(servers, "cluster") as admin:
            await admin.unregister_broker(broker_id)

    run(work, servers)
    print_text(f"broker {broker_id} is forgotten")
