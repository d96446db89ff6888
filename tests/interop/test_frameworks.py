"""Stream frameworks, unchanged, each in an environment of its own: what goes in comes out once.

For `make test-full`: pip fetches them, and where it cannot the test is skipped with the reason.
"""

import os
import re
import subprocess
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog import NewTopic, TopicPartition, sync
from tests.support import evidence

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(400)]

COUNT = 20
SCRIPTS = Path(__file__).with_name("frameworks")
FRAMEWORKS = {
    "quix_streams": ("quixstreams",),
    "fast_stream": ("faststream[confluent]",),
    "bytewax_flow": ("bytewax", "confluent-kafka<3"),
    "kombu_queue": ("kombu[confluentkafka]",),
}
"""Script -> what pip installs for it."""


@pytest.fixture(scope="module")
def versions() -> Iterator[dict[str, list[str]]]:
    """What was run; written down at the end."""
    ran: dict[str, list[str]] = {}
    yield ran
    verdict = "passed" if len(ran) == len(FRAMEWORKS) else "not all ran"
    evidence.write("frameworks", verdict, {"frameworks": ran})


@pytest.fixture(params=sorted(FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}


def installed(framework: str, folder: Path) -> tuple[Path, list[str]]:
    """A Python that has the framework, and the versions that matter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", *FRAMEWORKS[framework]],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"{framework} cannot be installed: {done.stderr.strip()[-300:]}")
    listed = subprocess.run(
        [*pip, "freeze"], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    names = {re.split(r"[\[<]", package)[0] for package in FRAMEWORKS[framework]}
    names.add("confluent-kafka")
    return python, [line for line in listed.stdout.splitlines() if line.split("==")[0] in names]


def test_a_framework_carries_every_record_once(
    framework: str, bootstrap_servers: str, tmp_path: Path, versions: dict[str, list[str]]
) -> None:
    python, found = installed(framework, tmp_path / "environment")
    mark = uuid.uuid4().hex[:8]
    source, target = f"in-{mark}", f"out-{mark}"
    with sync.Admin(bootstrap_servers) as admin:
        admin.create_topics([NewTopic(source, 1), NewTopic(target, 1)])
    with sync.Producer(bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(source, b"r%d" % number)
    done = subprocess.run(
        [str(python), str(SCRIPTS / f"{framework}.py"), bootstrap_servers, source, target],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with sync.Consumer(bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        seen: list[bytes | None] = []
        while records := consumer.poll(timeout_ms=1000):
            seen += [record.value for record in records]
    assert sorted(map(bytes.decode, filter(None, seen))) == sorted(f"R{n}" for n in range(COUNT))
    versions[framework] = found
