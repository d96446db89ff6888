"""The commands as processes, against a broker process: pipes, signals and terminals."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.slow

WAIT_S = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "data") as process:
        yield process


class Shell:
    """Runs `oncelog ...` with the broker's address in the environment."""

    def __init__(self, bootstrap_server: str) -> None:
        self.environment = os.environ | {"ONCELOG_BOOTSTRAP_SERVER": bootstrap_server}
        self.environment.pop("NO_COLOR", None)
        self.environment["TERM"] = "xterm-256color"

    def start(
        self, *arguments: str, stdin: int | IO[bytes] | None = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "oncelog", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        with self.start(*arguments) as process:
            output, errors = process.communicate(stdin, timeout=WAIT_S)
        assert process.returncode == code, errors.decode()
        return output.decode()

    def aside(self, *arguments: str, stdin: bytes = b"") -> str:
        """The same in this process, for what a test is not about: a process costs half a second."""
        done = CliRunner().invoke(main, arguments, input=stdin, env=self.environment)
        assert done.exit_code == 0, done.output
        return done.stdout

    def on_terminal(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Exit code, and what a terminal of 100 columns got to see."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "oncelog", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            env=self.environment | {"COLUMNS": "100"} | environment,
        )
        os.close(follower)
        seen = b""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            ready, _, _ = select.select([leader], [], [], 0.2)
            try:
                chunk = os.read(leader, 65536) if ready else b""
            except OSError:
                break  # Linux: the last writer is gone.
            if ready and not chunk:
                break
            seen += chunk
        os.close(leader)
        return process.wait(WAIT_S), seen.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap_servers)


def ended(process: "subprocess.Popen[bytes]", number: signal.Signals) -> tuple[int, str]:
    """Exit code and standard error of a process that is sent a signal."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, errors.decode()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_lines_go_through_a_pipe_of_commands(shell: Shell) -> None:
    shell.run("topics", "create", "pipe", "pipe-copy")
    lines = "".join(f"{number}\n" for number in range(20_000))
    shell.run("produce", "pipe", stdin=lines.encode())
    with (
        shell.start(
            "consume", "pipe", "--json", "--from-beginning", "--until-end", stdin=subprocess.DEVNULL
        ) as consume,
        shell.start("produce", "pipe-copy", "--format", "json", stdin=consume.stdout)
        as produce,
    ):  # fmt: skip
        assert produce.wait(WAIT_S) == 0
        assert consume.wait(WAIT_S) == 0
    assert shell.run("consume", "pipe-copy", "--from-beginning", "--until-end") == lines


def test_a_reader_that_goes_away_is_a_normal_end(shell: Shell) -> None:
    shell.aside("topics", "create", "head")
    lines_count = 10_000
    line = b"x" * 50 + b"\n"  # more than a pipe holds, in all
    shell.aside("produce", "head", stdin=line * lines_count)
    with shell.start("consume", "head", "--from-beginning", "--group", "head") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == line
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == b""
    # What the reader did not take is not counted as read.
    left = shell.aside("consume", "head", "--group", "head", "--until-end").count("\n")
    assert 0 < left < lines_count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_consumer_follows_until_a_signal_and_commits(shell: Shell, number: int) -> None:
    topic = f"follow-{number}"
    shell.aside("topics", "create", topic)
    shell.aside("produce", topic, stdin=b"old\n")
    with shell.start("consume", topic, "--from-beginning", "--group", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"old\n"
        shell.aside("produce", topic, stdin=b"new\n")
        assert process.stdout.readline() == b"new\n"  # at once, not when a buffer is full
        assert ended(process, signal.Signals(number)) == (0, "")
    shell.aside("produce", topic, stdin=b"newer\n")
    assert shell.aside("consume", topic, "--group", topic, "--until-end") == "newer\n"


def test_an_interrupted_transaction_is_aborted(shell: Shell) -> None:
    shell.aside("topics", "create", "interrupted")
    with shell.start("produce", "interrupted", "--transactional-id", "i") as process:
        assert process.stdin is not None
        process.stdin.write(b"never\n")
        process.stdin.flush()
        everything = ("--from-beginning", "--isolation-level", "read_uncommitted")
        seen = shell.aside("consume", "interrupted", *everything, "--max-messages", "1")
        assert seen == "never\n"
        code, errors = ended(process, signal.SIGINT)
    assert code == 130
    assert errors == (
        "interrupted; the transaction was aborted: readers under read_committed see none of it\n"
    )
    assert shell.aside("consume", "interrupted", "--from-beginning", "--until-end") == ""


def test_a_second_producer_with_the_same_id_fences_the_first(shell: Shell) -> None:
    shell.aside("topics", "create", "fenced")
    with shell.start("produce", "fenced", "--transactional-id", "f") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        everything = ("--from-beginning", "--isolation-level", "read_uncommitted")
        shell.aside("consume", "fenced", *everything, "--max-messages", "1")
        shell.aside("produce", "fenced", "--transactional-id", "f", stdin=b"second\n")
        _, errors = process.communicate(b"third\n", timeout=WAIT_S)
        assert process.returncode == 1
    (line,) = errors.decode().splitlines()
    assert "took over" in line
    assert shell.aside("consume", "fenced", "--from-beginning", "--until-end") == "second\n"


def test_a_terminal_gets_tables_in_colour_and_a_pipe_plain_text(shell: Shell) -> None:
    shell.aside("topics", "create", "shown", "--partitions", "2", "--config", "retention.ms=60000")
    code, seen = shell.on_terminal("topics", "describe", "shown")
    assert code == 0
    assert "\x1b[1;36mshown\x1b[0m" in seen
    assert re.search(r"^Setting +Value +From *$", plain(seen), re.MULTILINE)
    assert re.search(r"^retention\.ms +60000 +topic *$", plain(seen), re.MULTILINE)
    _, seen = shell.on_terminal("topics", "list")
    assert re.search(r"^shown +2 +1 +[0-9a-f-]{36} *$", plain(seen), re.MULTILINE)
    _, without = shell.on_terminal("topics", "list", NO_COLOR="1")
    assert "\x1b[36m" not in without
    assert "\x1b" not in shell.run("topics", "list")


def test_a_record_cannot_command_the_terminal(shell: Shell) -> None:
    shell.aside("topics", "create", "escape")
    shell.aside("produce", "escape", stdin=b"\x1b]0;title\x07\xff\n")
    _, seen = shell.on_terminal("consume", "escape", "--from-beginning", "--until-end")
    assert seen.splitlines()[0] == r"\x1b]0;title\x07\xff"
    raw = subprocess.run(
        [sys.executable, "-m", "oncelog", "consume", "escape", "--from-beginning", "--until-end"],
        capture_output=True,
        env=shell.environment,
        timeout=WAIT_S,
        check=True,
    )
    assert raw.stdout == b"\x1b]0;title\x07\xff\n"


def test_an_error_is_red_on_a_terminal(shell: Shell) -> None:
    code, seen = shell.on_terminal("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert code == 1
    assert seen.startswith("\x1b[31mError: no broker answers at 127.0.0.1:1 (")
    assert seen.count("\n") == 1


def test_who_types_records_is_told_how_to_end(shell: Shell) -> None:
    shell.aside("topics", "create", "typed")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "oncelog", "produce", "typed"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=shell.environment,
    )
    os.close(follower)
    try:
        seen = b""
        while b"Ctrl-D ends" not in seen:
            seen += os.read(leader, 65536)
        os.write(leader, b"hello\n\x04")
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        os.close(leader)
    assert shell.aside("consume", "typed", "--from-beginning", "--until-end") == "hello\n"


def test_ctrl_c_at_a_prompt_ends_the_command(shell: Shell) -> None:
    shell.aside("topics", "create", "prompt")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "oncelog", "topics", "delete", "prompt"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=shell.environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(leader, 65536)
    try:
        # A person presses again, too: a signal just before the read begins is not seen by it.
        for _ in range(WAIT_S):
            os.write(leader, b"\x03")
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
        assert process.returncode == 130
    finally:
        process.kill()
        os.close(leader)
    assert "prompt" in shell.aside("topics", "list")


def test_a_server_that_is_no_broker_is_one_line(shell: Shell) -> None:
    """Something listens and hangs up: no broker, but no refused connection either."""
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with shell.start("topics", "list", "--bootstrap-server", address) as process:
            _, errors = process.communicate(timeout=WAIT_S)
        thread.join(WAIT_S)
    assert process.returncode == 1
    (line,) = errors.decode().splitlines()
    assert line.startswith(f"Error: no broker answers at {address} (")


def test_no_command_pays_for_another() -> None:
    code = (
        "import json, sys; from oncelog.cli.main import main; main.get_command(None, 'serve');"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "oncelog.cli.serve" in loaded
    assert not {name for name in loaded if name.split(".")[0] == "rich"}
    assert not {name for name in loaded if name.startswith("oncelog.client")}
