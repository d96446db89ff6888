"""How a blocking client ends: in a forked child, by a signal, with the process, unreferenced."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog import sync
from tests.unit.broker.test_embedded_ends import run_script

WAIT_S = 30

FORK = """
from oncelog import EmbeddedBroker, sync
with EmbeddedBroker() as broker, sync.Producer(broker.bootstrap_servers) as producer:
    producer.send("t", b"before").result(30)
    sent = producer.send("t", b"during")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        for call in (producer.flush, lambda: producer.send("t", b"v"), lambda: sent.result(30)):
            try:
                call()
                os.write(writing, b"done;")
            except RuntimeError as error:
                os.write(writing, str(error).encode() + b";")
        producer.close()
        with sync.Producer(broker.bootstrap_servers) as own:
            own.send("t", b"child").result(30)
        os.write(writing, b"own works")
        {leave}
    os.close(writing)
    with os.fdopen(reading) as said:
        print(*said.read().split(";"), sep="\\n")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(producer.send("t", b"after").result(30).offset > 0)
"""
FORKED = "it was made before this process was forked: make another one in the child"


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["sys.exit(7)", "os._exit(7)"])
def test_a_forked_child_is_told_to_make_its_own_client(tmp_path: Path, leave: str) -> None:
    done = run_script(FORK.format(leave=leave), tmp_path)
    first, second, sent, own, code, after = done.stdout.splitlines()
    assert (first, second, own, code, after) == (FORKED, FORKED, "own works", "7", "True")
    # It may have been acknowledged before the fork.
    assert sent in (FORKED, "done")


SIGNALS = {
    "that interrupts the wait": "os.kill(os.getpid(), signal.SIGUSR1)",
    "that does not": "signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("send", SIGNALS.values(), ids=SIGNALS)
def test_a_signal_handler_may_close_a_client_whose_call_waits(tmp_path: Path, send: str) -> None:
    """Also where the signal came just before the wait, and has interrupted nothing."""
    script = f"""
import asyncio, threading
from oncelog import sync
admin = sync.Admin("127.0.0.1:1")
signal.signal(signal.SIGUSR1, lambda *_: admin.close())
async def wait():
    {send}
    await asyncio.get_running_loop().create_future()
try:
    admin._loop.run(wait())
except RuntimeError as error:
    print(error)
admin.close()
"""
    done = run_script(script, tmp_path)
    assert done.stdout == "it was closed while this call waited\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "__import__('atexit').register(producer.close)"])
def test_a_process_ends_though_a_client_was_not_closed(tmp_path: Path, end: str) -> None:
    script = f"""
from oncelog import EmbeddedBroker, sync
broker = EmbeddedBroker().__enter__()
producer = sync.Producer(broker.bootstrap_servers)
producer.start()
print(producer.send("t", b"v").result(30).offset)
{end}
"""
    done = run_script(script, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


def test_the_thread_of_a_client_that_was_never_closed_ends_with_it() -> None:
    client = sync.Admin("127.0.0.1:1")
    thread = client._loop._thread
    with pytest.warns(ResourceWarning, match="a client was never closed"):
        del client
    thread.join(WAIT_S)
    assert not thread.is_alive()
