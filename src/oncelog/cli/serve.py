"""``oncelog serve``: one broker in this process, until SIGTERM, SIGINT or SIGHUP.

Settings come from the file, then `--data-dir` and `--listen`, then `--set`; later ones win, and
`--listen` takes the place of what the file advertises as well.
Every mistake in the settings ends in one sentence on standard error and exit code 1 (2 for misuse
of the command line itself). The line ``oncelog: ready on ...`` on standard output
says that clients can connect; systemd is told so too, and when a stop begins.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from oncelog.cli.logs import logging_options
from oncelog.cli.properties import parse_properties, parse_setting
from oncelog.cli.tool import ToolCommand
from oncelog.core.config import BrokerConfig, parse_listener
from oncelog.core.config_definition import ConfigError
from oncelog.runtime.loop import new_event_loop
from oncelog.runtime.memory import collect_in_small_steps, keep_freed_memory
from oncelog.runtime.open_files import raise_limit
from oncelog.runtime.service_manager import notify

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.runtime.network import Network

__all__ = ["command"]

log = logging.getLogger("oncelog")

STOP_SAID_EVERY_S: Final = 2
"""Interval at which a long stop logs what it waits for, in seconds."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread of the executor may hold the interpreter while the event loop wants it.

With Python's default of 5 ms, every client would wait that long for each thread that compacts a log
or creates partitions.
"""

_LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


@click.command("serve", cls=ToolCommand)
@click.option("--config", "config_file", metavar="FILE", help="A Kafka-style .properties file.")
@click.option("--data-dir", metavar="DIR[,DIR]...", help="The log directories (log.dirs).")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes any free port.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="One setting; repeatable."
)
@logging_options("info")
def command(
    config_file: str | None, data_dir: str | None, listen: str | None, settings: tuple[str, ...]
) -> None:
    """Run a broker."""
    try:
        config = BrokerConfig(gather(config_file, data_dir, listen, settings))
    except ConfigError as error:
        raise click.ClickException(_refusals(error)) from None
    for warning in config.warnings:
        log.warning("%s", warning)
    for host in _open_to_all(config):
        log.warning(
            "listening on %s: no client has to authenticate, and each can read and write", host
        )
    sys.exit(run(config))


def _open_to_all(config: BrokerConfig) -> list[str]:
    """Return the addresses beyond this machine at which no client has to say who it is."""
    return [
        listener.bound.host or "every interface"
        for listener in config.listeners
        if listener.bound.host not in _LOCAL_HOSTS
        and not listener.has_sasl
        and not (
            listener.has_tls
            and config.within(listener.name).get_str("ssl.client.auth") == "required"
        )
    ]


def _refusals(error: ConfigError) -> str:
    if len(error.problems) == 1:
        return str(error)
    return "\n  ".join([f"{len(error.problems)} settings cannot be accepted:", *error.problems])


def gather(
    config_file: str | None, data_dir: str | None, listen: str | None, settings: tuple[str, ...]
) -> dict[str, str]:
    """The settings as given, by key. Raises `ConfigError`."""
    given: dict[str, str] = {}
    if config_file is not None:
        try:
            given |= parse_properties(Path(config_file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"cannot read {config_file}: {reason}") from None
    if data_dir is not None:
        given["log.dirs"] = data_dir
    if listen is not None:
        endpoint = parse_listener("--listen", listen)
        # The file's advertised address belongs to its own listener, which --listen replaces.
        given.pop("advertised.listeners", None)
        given["listeners"] = f"PLAINTEXT://{endpoint}"
    given |= dict(parse_setting(setting) for setting in settings)
    return given


def run(config: BrokerConfig, network: Network | None = None) -> int:
    """Run the broker on a loop of its own; returns the exit code. A test gives its `network`."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(config, network))


async def _serve(config: BrokerConfig, network: Network | None) -> int:
    from oncelog.broker.broker import Broker
    from oncelog.core.errors import OncelogError

    raise_limit()
    broker = Broker(config, network=network)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, broker.request_stop)
    try:
        await broker.start()
    except OncelogError as error:
        return _refuse(str(error))
    collect_in_small_steps()
    _announce(broker)
    notify("READY=1")
    keep_freed_memory()
    await broker.wait_until_stop_is_requested()
    notify("STOPPING=1")
    await stop_aloud(broker)
    return 0 if broker.stopped_because is None else 1


def stop_signals() -> list[signal.Signals]:
    """The signals that stop the broker; SIGHUP is left alone where `nohup` had it ignored."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


async def stop_aloud(broker: Broker) -> None:
    """Stop, and say what it is that takes long."""

    async def tell() -> None:
        for passed_s in count(STOP_SAID_EVERY_S, STOP_SAID_EVERY_S):
            await broker.clock.sleep(STOP_SAID_EVERY_S * 1000)
            log.info("still stopping after %d s: %s", passed_s, broker.stopping)

    teller = asyncio.create_task(tell())
    try:
        await broker.stop()
    finally:
        teller.cancel()


def _announce(broker: Broker) -> None:
    listeners = broker.server.listeners
    places = [
        str(each.address) if len(listeners) == 1 else f"{each.name}://{each.address}"
        for each in listeners
    ]
    count = len(broker.image.topics)
    topics = f"{count} topic{'s' if count != 1 else ''}"
    click.echo(
        f"oncelog: ready on {', '.join(places)} (node {broker.broker_id}, "
        f"data {', '.join(map(os.path.abspath, broker.config.data_dirs))}, {topics})"
    )
    sys.stdout.flush()


def _refuse(sentence: str) -> int:
    click.echo(f"Error: {sentence}", err=True)
    return 1
