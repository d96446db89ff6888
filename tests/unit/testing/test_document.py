"""The code in docs/testing.md runs."""

import re
from pathlib import Path

import pytest

from tests.support.documents.comparing import matches
from tests.unit.testing.test_plugin import run

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
TEXT = DOCUMENT.read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
TESTS = [block for block in BLOCKS if "def test_" in block]


@pytest.mark.parametrize("source", TESTS)
def test_the_tests_of_the_guide_pass(pytester: pytest.Pytester, source: str) -> None:
    pytest.importorskip("confluent_kafka")
    result = run(pytester, source, "-o", "asyncio_mode=auto")
    result.assert_outcomes(passed=source.count("def test_"))


REPORTED = """
import asyncio
import oncelog as package

def test_transfer(oncelog):
    oncelog.create_topic("orders", 1, {})

    async def transfer():
        servers = oncelog.bootstrap_servers
        async with package.Producer(servers, transactional_id="transfer") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("orders", b"3 apples")
            await producer.commit_transaction()

    asyncio.run(transfer())
    assert False
"""


def test_a_failed_test_is_told_what_the_guide_shows(pytester: pytest.Pytester) -> None:
    (shown,) = re.findall(r"^```text\n(-+ oncelog: topics.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    result = run(pytester, REPORTED)
    result.assert_outcomes(failed=1)
    printed = "\n".join(result.outlines)
    reported = re.search(
        r"^-+ oncelog: topics.*?(?=^-+ oncelog: the)", printed, re.MULTILINE | re.DOTALL
    )
    assert reported is not None, printed
    assert matches(shown, reported[0]), reported[0]


def test_there_are_such_tests() -> None:
    assert TESTS
