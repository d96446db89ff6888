"""A broker process that ends itself by SIGKILL at one moment of its input and output.

Run as ``python -m tests.support.dying_broker FOLDER PORT MOMENT``: the moments of
`tests.support.moments` are counted from the broker's start on if MOMENT is negative (-3 is the
third one), from when it serves if it is positive; 0 never ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from oncelog.broker.broker import Broker
from oncelog.core.config import BrokerConfig
from oncelog.runtime.disk import SystemDisk
from oncelog.runtime.network import SystemNetwork
from tests.support.left_folders import check_left
from tests.support.moments import Moments, counted_disk, counted_network
from tests.support.peer.child import BrokerChild

READY_TIMEOUT_S = 30
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class DyingBroker(BrokerChild):
    """The process as its supervisor has it: `start` again after each death."""

    def start(self, moment: int = 0) -> None:
        """Start it. Raises RuntimeError if it dies before it answers.

        What its last life left has to agree with its logs.
        """
        check_left(self.folder, was_closed=False)
        command = [sys.executable, "-m", "tests.support.dying_broker"]
        command += [str(self.folder), str(self.port), str(moment)]
        self.launch(command, self.folder.with_name("broker.log"), READY_TIMEOUT_S)

    @property
    def is_dead(self) -> bool:
        return self.child.poll() is not None


def _end(what: str) -> None:
    print(f"SIGKILL {what}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def _serve(folder: Path, port: int, moment: int) -> None:
    moments = Moments(_end, max(0, -moment))
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    broker = Broker(
        BrokerConfig({**SETTINGS, "log.dirs": str(folder), "listeners": listener}),
        disk=counted_disk(SystemDisk(), moments),
        network=counted_network(SystemNetwork(), moments),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, broker.request_stop)
    await broker.start()
    if moment > 0:
        # One reply is that to whoever asked whether it serves.
        moments.end_at = moments.count + 2 + moment
    await broker.wait_until_stop_is_requested()
    await broker.stop()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
