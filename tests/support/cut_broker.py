"""`oncelog serve` whose connections a test can cut, from other brokers and from clients.

Run as ``python -m tests.support.cut_broker FOLDER ID serve OPTION...``. FOLDER is that of `Cuts`,
which all brokers of a cluster share: what is cut stands in a file there, and each process looks at
it every `LOOK_S`. Nothing of the host is touched, and connections that are open are cut as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from oncelog.cli.serve import gather, run
from oncelog.core.config import BrokerConfig
from oncelog.runtime.network import Listener, ProtocolFactory
from oncelog.testing.network import Cables, ControlledNetwork

CLIENTS = 0
"""Stands for all peers that are no broker."""
LOOK_S = 0.02
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

Pair = tuple[int, int]
"""(source, target): nothing from the one arrives at the other."""


class Cuts:
    """The folder in which the cuts of a cluster stand, for those who cut and who are cut.

    `ports` has the port of each broker.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "cuts.json"
        self.sources = folder / "sources"

    def write(self, ports: Mapping[int, int], pairs: Iterable[Pair]) -> None:
        """Have the brokers cut these pairs and no others."""
        self.sources.mkdir(parents=True, exist_ok=True)
        whole = self.file.with_suffix(".new")
        whole.write_text(json.dumps({"ports": list(ports.items()), "cuts": sorted(pairs)}))
        os.replace(whole, self.file)


class _Sources(dict[int, int]):
    """The broker that connects from each port: kept in files, for it is another process."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __setitem__(self, port: int, broker_id: int) -> None:
        (self._folder / str(port)).write_text(str(broker_id))

    def get(self, port: int, default: Any = None) -> int:
        try:
            return int((self._folder / str(port)).read_text() or CLIENTS)
        except FileNotFoundError:
            return CLIENTS

    def pop(self, port: int, default: Any = None) -> None:  # type: ignore[override]
        (self._folder / str(port)).unlink(missing_ok=True)


class CutNetwork(ControlledNetwork):
    """The network of one broker, which follows the cuts of the folder while it listens."""

    def __init__(self, broker_id: int, cuts: Cuts) -> None:
        super().__init__(broker_id, Cables())
        self.cables.sources = _Sources(cuts.sources)
        self._cuts = cuts
        self._said = ""
        self._following: asyncio.Task[None] | None = None

    async def listen(
        self, host: str, port: int, protocol_factory: ProtocolFactory, *, accepts: bool = True
    ) -> Listener:
        """See `Network.listen`."""
        self._look()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        return await super().listen(host, port, protocol_factory, accepts=accepts)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        said = self._cuts.file.read_text()
        if said != self._said:
            self._said, cables = said, self.cables
            told = json.loads(said)
            cables.listeners.update({port: broker_id for broker_id, port in told["ports"]})
            cables.cuts = {(source, target) for source, target in told["cuts"]}
            self.changed()
        elif self.cables.cuts:
            # Who connects from a port may have been written only after the connection came.
            self.changed()


def main() -> int:
    """Serve, as the command does; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("broker_id", type=int)
    parser.add_argument("serve", choices=["serve"])
    parser.add_argument("--data-dir")
    parser.add_argument("--listen")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    config = BrokerConfig(gather(None, given.data_dir, given.listen, tuple(given.set)))
    return run(config, CutNetwork(given.broker_id, Cuts(given.folder)))


if __name__ == "__main__":
    sys.exit(main())
