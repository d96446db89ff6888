"""How an embedded broker ends: by leaving its block, by a fork, by a signal, with the process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from oncelog import EmbeddedBroker

SCRIPT_TIMEOUT_S = 30
FOLDER_TIMEOUT_S = 10


def run_script(script: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process whose temporary files go to that folder."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-W", "ignore", "-c", "import os, sys, signal, socket\n" + script]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SCRIPT_TIMEOUT_S,
        check=False,
    )


def wait_until_empty(folder: Path) -> None:
    """Wait for the shell that removes temporary folders: it is nobody's child."""
    end_s = time.monotonic() + FOLDER_TIMEOUT_S
    while os.listdir(folder) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert os.listdir(folder) == []


FORK = """
from oncelog import EmbeddedBroker
with EmbeddedBroker() as broker:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    folder = broker.data_dir
    go, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go[0], 1)
        os.write(done[1], broker.bootstrap_servers.encode())
        os.read(go[0], 1)
        {leave}
    os.write(go[1], b"1")
    print(os.read(done[0], 99).decode() == broker.bootstrap_servers)
    {while_running}
{after}
"""


@pytest.mark.slow
def test_a_forked_child_that_leaves_the_block_deletes_nothing(tmp_path: Path) -> None:
    done = run_script(
        FORK.format(
            leave="sys.exit(7)",
            while_running="""os.write(go[1], b"1")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(os.path.exists(os.path.join(folder, "meta.properties")))
    print(socket.socket().connect_ex((host, int(port))))""",
            after="print(os.listdir(os.environ['TMPDIR']))",
        ),
        tmp_path,
    )
    assert done.stdout.split() == [
        "True",
        "7",
        "True",
        "0",
        "[]",
    ], done.stderr


@pytest.mark.slow
def test_a_forked_child_holds_no_port_and_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    script = FORK.replace("EmbeddedBroker()", f"EmbeddedBroker({str(folder)!r})").format(
        leave="os._exit(0)",
        while_running="client = socket.create_connection((host, int(port)))",
        after=f"""print(socket.socket().connect_ex((host, int(port))) != 0)
with EmbeddedBroker({str(folder)!r}, port=int(port)):
    print("again")
os.write(go[1], b"1")
os.waitpid(child, 0)""",
    )
    done = run_script(script, tmp_path)
    assert done.stdout.split() == ["True", "True", "again"], done.stderr


@pytest.mark.slow
def test_a_forked_child_does_not_hold_the_port_of_metrics(tmp_path: Path) -> None:
    script = FORK.replace(
        "EmbeddedBroker()", "EmbeddedBroker(config={{'oncelog.metrics.address': '127.0.0.1:0'}})"
    ).format(
        leave="os._exit(0)",
        while_running="address = broker.call(lambda inside: inside.metrics.address)",
        after="""print(socket.socket().connect_ex(address) != 0)
os.write(go[1], b"1")
os.waitpid(child, 0)""",
    )
    done = run_script(script, tmp_path)
    assert done.stdout.split() == ["True", "True"], done.stderr


@pytest.mark.slow
def test_a_connection_that_the_broker_closes_ends_although_a_forked_child_lives(
    tmp_path: Path,
) -> None:
    script = """
from oncelog import EmbeddedBroker
go = os.pipe()
with EmbeddedBroker() as broker:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = socket.create_connection((host, int(port)))
    broker.call(lambda inside: len(inside.server.connections))
    child = os.fork()
    if child == 0:
        client.close()
        os.read(go[0], 1)
        os._exit(0)
client.settimeout(5)
print(client.recv(1))
os.write(go[1], b"1")
"""
    done = run_script(script, tmp_path)
    assert done.stdout == "b''\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_that_ends_the_process_leaves_no_temporary_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = f"""
from oncelog import EmbeddedBroker
import threading
with EmbeddedBroker() as broker:
    print(len(os.listdir(os.environ["TMPDIR"])), flush=True)
    # A call that does not come back from C, as a blocking client's may not.
    threading.Timer(0, os.kill, (os.getpid(), {int(number)})).start()
    __import__("ctypes").CDLL(None).sleep(60)
"""
    done = run_script(script, tmp_path)
    assert done.stdout == "1\n"
    assert done.returncode == -number
    wait_until_empty(tmp_path)


@pytest.mark.slow
def test_a_killed_process_group_leaves_no_temporary_folder(tmp_path: Path) -> None:
    # As `timeout -s KILL` does, and a shell that kills a job.
    script = """
from oncelog import EmbeddedBroker
os.setpgid(0, 0)
with EmbeddedBroker() as broker:
    print(len(os.listdir(os.environ["TMPDIR"])), flush=True)
    os.killpg(0, signal.SIGKILL)
"""
    done = run_script(script, tmp_path)
    assert (done.stdout, done.returncode) == ("1\n", -signal.SIGKILL)
    wait_until_empty(tmp_path)


@pytest.mark.slow
def test_a_program_keeps_its_signal_handlers_and_has_no_child(tmp_path: Path) -> None:
    script = """
from oncelog import EmbeddedBroker
with EmbeddedBroker():
    print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    try:
        os.wait()
    except ChildProcessError:
        print("no child")
"""
    done = run_script(script, tmp_path)
    assert done.stdout == "True\nno child\n", done.stderr


@pytest.mark.slow
def test_a_block_that_is_never_left_leaves_no_temporary_folder(tmp_path: Path) -> None:
    script = """
from oncelog import EmbeddedBroker
broker = EmbeddedBroker().__enter__()
print(len(os.listdir(os.environ["TMPDIR"])))
"""
    done = run_script(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    assert os.listdir(tmp_path) == []


def test_the_threads_of_a_broker_end_with_it() -> None:
    before = set(threading.enumerate())
    with EmbeddedBroker():
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    embedded = EmbeddedBroker()
    starting = asyncio.ensure_future(embedded.__aenter__())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert set(threading.enumerate()) == before
    with embedded:
        pass


def test_a_call_from_the_brokers_own_thread_is_refused() -> None:
    with EmbeddedBroker() as broker, pytest.raises(RuntimeError, match="would wait for itself"):
        broker.call(lambda _: broker.call(lambda inside: inside))
