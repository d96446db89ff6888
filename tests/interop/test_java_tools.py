"""Tools that share a JVM end, print and fail as if each had its own."""

import pytest

from tests.support.java_tools import run_tool

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.usefixtures("java_class_path"),
]

OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


def test_a_tool_that_ends_its_process_leaves_its_code_and_its_words() -> None:
    refused = run_tool(OFFSETS, "--topic", "any")
    assert refused.returncode == 1
    assert "bootstrap-server" in refused.stderr
    assert "Tools$Ended" not in refused.stderr
    helped = run_tool(OFFSETS, "--version")
    assert helped.returncode == 0
    assert "bootstrap-server" not in helped.stdout + helped.stderr


def test_a_tool_that_is_not_there_is_told_as_the_launcher_does() -> None:
    done = run_tool("kafka.tools.NoSuchTool")
    assert done.returncode == 1
    assert "Could not find or load main class kafka.tools.NoSuchTool" in done.stderr


def test_what_a_tool_reads_is_its_own_input(bootstrap_servers: str) -> None:
    topic = ("--bootstrap-server", bootstrap_servers, "--topic", "java-tools")
    for line in ("one", "two"):
        assert run_tool("org.apache.kafka.tools.ConsoleProducer", *topic, text=line).returncode == 0
    reading = ("--from-beginning", "--timeout-ms", "15000", "--max-messages", "2")
    read = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *topic, *reading)
    # In any order: a producer of the tool closes, and so flushes, with the JVM that all share.
    assert sorted(read.stdout.splitlines()) == ["one", "two"]
