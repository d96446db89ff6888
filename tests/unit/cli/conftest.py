"""A broker for the commands, and a way to call them as a shell would."""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker
from oncelog.cli.main import main
from tests.support.root_logger import root_logger_as_before

Oncelog = Callable[..., Result]


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    """What a command that serves sets up would show in the output of later tests."""
    with root_logger_as_before():
        yield


@pytest.fixture(scope="module")
def bootstrap_server() -> Iterator[str]:
    """A broker of this process, or the running cluster that the interop suite is told of too."""
    if running := os.environ.get("ONCELOG_TEST_BOOTSTRAP_SERVERS"):
        yield running
        return
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def oncelog(bootstrap_server: str) -> Oncelog:
    """Calls `oncelog ARGUMENTS`, with the broker's address in the environment."""

    def call(*arguments: str, stdin: str | bytes = b"") -> Result:
        environment = {"ONCELOG_BOOTSTRAP_SERVER": bootstrap_server}
        result = CliRunner().invoke(main, list(arguments), input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def topic(oncelog: Oncelog, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own, with two partitions."""
    name = request.node.name.split("[")[0][:200]
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    result = oncelog("topics", "create", name, "--partitions", "2")
    assert result.exit_code == 0, result.stderr
    return name
