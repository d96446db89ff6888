"""One broker and one session for all Spark tests.

``ONCELOG_TEST_BOOTSTRAP`` names another cluster instead.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncelog.spark.versions import has_admission_control
from tests.spark.support import Job, end_session, lasting_session
from tests.support import postgres as postgresql
from tests.support.broker import BrokerProcess

collect_ignore = (
    []
    if has_admission_control()
    else ["test_docs.py", "test_pipeline_example.py", "test_source.py"]
)
"""They read through our source; `test_refused_source.py` has its refusal."""


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    external = os.environ.get("ONCELOG_TEST_BOOTSTRAP")
    if external:
        yield external
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def job(bootstrap_servers: str, tmp_path: Path) -> Job:
    """A job of its own, with topics that nobody else uses."""
    return Job(bootstrap_servers, tmp_path, f"job-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """For all tests that do not kill Spark's driver: the session that runs, or a new one."""
    return lasting_session()


@pytest.fixture(scope="session", autouse=True)
def last_session() -> Iterator[None]:
    """Whatever session runs at the end is stopped."""
    yield
    end_session()


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.PostgresProcess]:
    """A PostgreSQL cluster for all tests; a skip with the reason where none can be had."""
    reason = postgresql.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgresql.PostgresProcess() as process:
        yield process
