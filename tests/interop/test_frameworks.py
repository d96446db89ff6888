"""Stream frameworks, unchanged, each in an environment of its own: what goes in comes out once.

For `make test-full`: pip fetches them, and where it cannot the test is skipped with the reason.
"""

import re
import uuid
from pathlib import Path

import pytest

from oncelog import NewTopic, TopicPartition, sync
from tests.interop.conftest import is_oncelog
from tests.support.frameworks import FRAMEWORKS, forget, record
from tests.support.fresh_python import FreshPython, StepFailed

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(400)]

COUNT = 20
SCRIPTS = Path(__file__).with_name("frameworks")
NAMES = sorted(name for name, one in FRAMEWORKS.items() if one.packages)


@pytest.fixture(params=NAMES)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def installed(framework: str, folder: Path) -> tuple[FreshPython, list[str]]:
    """A Python that has the framework, and the versions that matter."""
    python = FreshPython.made(folder)
    packages = FRAMEWORKS[framework].packages
    try:
        python.install(*packages)
    except StepFailed as reason:
        pytest.skip(f"{framework} cannot be installed: {str(reason).strip()[-300:]}")
    names = {re.split(r"[\[<]", package)[0] for package in packages} | {"confluent-kafka"}
    found = python.installed()
    return python, [f"{name}=={found[name]}" for name in sorted(names)]


def test_a_framework_carries_every_record_once(
    framework: str,
    bootstrap_servers: str,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    python, versions = installed(framework, tmp_path / "environment")
    if is_oncelog(pytestconfig):
        forget(framework)
    mark = uuid.uuid4().hex[:8]
    source, target = f"in-{mark}", f"out-{mark}"
    with sync.Admin(bootstrap_servers) as admin:
        admin.create_topics([NewTopic(source, 1), NewTopic(target, 1)])
    with sync.Producer(bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(source, b"r%d" % number)
    python.run("python", SCRIPTS / f"{framework}.py", bootstrap_servers, source, target)
    with sync.Consumer(bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        seen: list[bytes | None] = []
        while records := consumer.poll(timeout_ms=1000):
            seen += [record.value for record in records]
    assert sorted(map(bytes.decode, filter(None, seen))) == sorted(f"R{n}" for n in range(COUNT))
    if is_oncelog(pytestconfig):
        record(framework, versions)
