"""`oncelog serve` as a process: its one line when ready, its one sentence when not, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from oncelog.broker.broker import Broker
from oncelog.cli.serve import (
    SWITCH_INTERVAL_S,
    _open_to_all,
    gather,
    run,
    stop_aloud,
    stop_signals,
)
from oncelog.core.config import BrokerConfig
from tests.support.stock_files import STOCK_FILES, properties
from tests.support.zookeeper import chroot

WAIT_S = 60


def serve(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oncelog", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


@contextmanager
def ready(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with serve(*arguments) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    with serve(*arguments) as process:
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "Traceback" not in errors
    (line,) = [line for line in errors.splitlines() if line.startswith("Error: ")]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_says_when_it_is_ready_and_stops_cleanly_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ready("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0") as (process, line):
        assert line.startswith("oncelog: ready on 127.0.0.1:")
        assert not line.startswith("oncelog: ready on 127.0.0.1:0 ")
        assert line.endswith(f"(node 1, data {tmp_path}, 0 topics)")
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        (said,) = process.stderr.read().splitlines()
        assert re.search(r": stopped in \d+\.\d s, the logs are closed cleanly$", said)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_under_nohup_a_hangup_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == [signal.SIGTERM, signal.SIGINT]
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_stop_that_takes_long_says_what_it_does(caplog: pytest.LogCaptureFixture) -> None:
    class Slow:
        """Stops once it has been said twice what takes so long."""

        stopping = "closing and syncing 7 logs"

        def __init__(self) -> None:
            self.clock = self
            self.slept_ms: list[float] = []
            self.said_enough = asyncio.Event()

        async def sleep(self, duration_ms: float) -> None:
            self.slept_ms.append(duration_ms)
            if len(self.slept_ms) > 2:
                self.said_enough.set()
                await asyncio.get_running_loop().create_future()

        async def stop(self) -> None:
            await self.said_enough.wait()

    caplog.set_level(logging.INFO)
    slow = Slow()
    await stop_aloud(cast("Broker", slow))
    assert slow.slept_ms == [2000, 2000, 2000]
    assert caplog.messages == [
        "still stopping after 2 s: closing and syncing 7 logs",
        "still stopping after 4 s: closing and syncing 7 logs",
    ]


@pytest.mark.slow
def test_the_executor_holds_the_interpreter_for_half_a_millisecond_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sys.getswitchinterval()
    seen = []

    async def note(config: BrokerConfig, _: object) -> int:
        seen.append(sys.getswitchinterval())
        return 0

    monkeypatch.setattr("oncelog.cli.serve._serve", note)
    try:
        assert run(BrokerConfig({})) == 0
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(SWITCH_INTERVAL_S)]


def test_a_port_or_a_folder_in_use_is_one_sentence(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    with ready("--data-dir", str(mine), "--listen", "127.0.0.1:0") as (_, line):
        address = line.split()[3]
        assert refused("--data-dir", str(other), "--listen", address) == (
            f"Error: cannot listen on {address}: the address is in use by another process"
        )
        sentence = refused("--data-dir", str(mine), "--listen", "127.0.0.1:0")
        assert str(mine) in sentence
        assert "in use by another broker" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("foo.bar=1", "foo.bar is not a known configuration key"),
        (
            "sasl.kerberos.x=y",
            "sasl.kerberos.x is not supported: the broker has no Kerberos and no delegation tokens",
        ),
    ],
)
def test_a_key_that_would_be_ignored_stops_the_start(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    assert refused("--data-dir", str(tmp_path / "d"), "--set", setting) == f"Error: {sentence}"
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
def test_all_keys_that_are_refused_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitons=2\nsasl.kerberos.x=y\n")
    with serve("--config", str(file), "--data-dir", str(tmp_path / "d")) as process:
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert errors.splitlines() == [
        "Error: 2 settings cannot be accepted:",
        "  num.partitons is not a known configuration key: did you mean num.partitions?",
        "  sasl.kerberos.x is not supported: the broker has no Kerberos and no delegation tokens",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("release", STOCK_FILES)
def test_the_stock_file_of_a_release_starts_a_broker(tmp_path: Path, release: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(properties(release))
    folder = str(tmp_path / "data")
    options = ["--config", str(file), "--data-dir", folder, "--listen", "127.0.0.1:0"]
    if "zookeeper.connect" in STOCK_FILES[release]:
        options += ["--set", f"zookeeper.connect={chroot()}"]
    with ready(*options) as (_, line):
        assert line.startswith("oncelog: ready on 127.0.0.1:")


@pytest.mark.slow
def test_an_address_that_others_reach_is_warned_about(tmp_path: Path) -> None:
    with ready("--data-dir", str(tmp_path), "--listen", "0.0.0.0:0") as (process, line):
        assert line.startswith("oncelog: ready on 0.0.0.0:")
        process.terminate()
        assert process.stderr is not None
        assert "no client has to authenticate" in process.stderr.read()


def test_another_address_is_advertised_too(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(properties("4.4"))
    config = BrokerConfig(gather(str(file), None, "127.0.0.1:19092", ()))
    assert config.listeners[0].bound == ("127.0.0.1", 19092)
    assert config.listeners[0].advertised is None
    advertised = "advertised.listeners=PLAINTEXT://kafka.test:1"
    config = BrokerConfig(gather(str(file), None, "127.0.0.1:19092", (advertised,)))
    assert config.listeners[0].advertised == ("kafka.test", 1)


def test_later_settings_win_over_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/elsewhere\nnode.id=7\n")
    given = gather(str(file), "/data", "[::1]:0", ("num.partitions=3",))
    assert given == {
        "num.partitions": "3",
        "log.dirs": "/data",
        "node.id": "7",
        "listeners": "PLAINTEXT://[::1]:0",
    }


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, ["0.0.0.0"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, []),
        ({"listeners": "SSL://h:1,PLAINTEXT://127.0.0.1:2"}, ["h"]),
        ({"listeners": "SSL://h:1,PLAINTEXT://127.0.0.1:2", "ssl.client.auth": "required"}, []),
        (
            {
                "listeners": "SASL_PLAINTEXT://h:1,PLAINTEXT://127.0.0.1:2",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            },
            [],
        ),
    ],
)
def test_who_may_come_without_a_name_is_said_of_each_listener(
    settings: dict[str, str], hosts: list[str]
) -> None:
    config = BrokerConfig({**settings, "inter.broker.listener.name": "PLAINTEXT"})
    assert _open_to_all(config) == hosts
