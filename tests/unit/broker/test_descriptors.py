"""A broker with more partitions than its process may have descriptors."""

import subprocess
import sys
from pathlib import Path

import pytest

BROKER = """
import asyncio, resource, sys
from pathlib import Path

from oncelog.controller.topics import TopicToCreate
from tests.unit.broker.context import running
from tests.unit.broker.raw import error_of, fetch, produce, values
from tests.unit.broker.support import batch

folder, limit, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

async def live(is_new):
    async with running(folder) as context:
        client = await context.connect()
        if is_new:
            await context.broker.controller.create_topics([TopicToCreate("t", partitions=count)])
        for index in range(0, count, 7):
            answer = await produce(client, 9, batch(2), partition=index)
            assert error_of(answer) == 0, answer
        for index in range(0, count, 7):
            found = await fetch(client, partition=index)
            assert len(values(found.records)) == (2 if is_new else 4)

for is_new in (True, False):
    asyncio.run(live(is_new))
print("served")
"""


@pytest.mark.slow
def test_there_may_be_more_partitions_than_descriptors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKER, str(tmp_path / "data"), "200", "400"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout == "served\n", ran.stderr
