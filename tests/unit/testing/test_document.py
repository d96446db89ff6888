"""What docs/testing.md shows of a failed test's report is what pytest prints.

Its tests are run by tests/interop/test_application_tests.py.
"""

import re
from pathlib import Path

import pytest

from tests.support.documents.comparing import matches
from tests.unit.testing.test_plugin import run

pytest_plugins = ["pytester"]

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
TEXT = DOCUMENT.read_text()
REPORTED = """
from oncelog import sync

def test_before(oncelog_broker):
    for number in range(29):
        oncelog_broker.create_topic(f"other-{number}")

def test_transfer(oncelog_broker):
    oncelog_broker.create_topic("orders")
    servers = oncelog_broker.bootstrap_servers
    with sync.Producer(servers, transactional_id="transfer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"3 apples")
        producer.commit_transaction()
    assert False
"""


def test_a_failed_test_is_told_what_the_guide_shows(pytester: pytest.Pytester) -> None:
    (shown,) = re.findall(r"^```text\n(-+ oncelog: topics.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    result = run(pytester, REPORTED)
    result.assert_outcomes(passed=1, failed=1)
    printed = "\n".join(result.outlines)
    reported = re.search(
        r"^-+ oncelog: topics.*?(?=^-+ oncelog: the)", printed, re.MULTILINE | re.DOTALL
    )
    assert reported is not None, printed
    assert matches(shown, reported[0]), reported[0]
