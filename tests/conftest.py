"""What all tests share: the profiles of Hypothesis, and how tests are dealt out to processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import evidence
from tests.support.dealing import GroupScheduling, has_none_of, place_of
from tests.support.examples import EXAMPLES_COUNT_QUICK, EXAMPLES_COUNT_THOROUGH
from tests.support.sound_folders import faults

# A test that is slow because the machine is busy has not failed.
settings.register_profile("full", settings(), deadline=None)
settings.register_profile("quick", settings(), deadline=None, max_examples=EXAMPLES_COUNT_QUICK)
settings.register_profile(
    "thorough", settings(), deadline=None, max_examples=EXAMPLES_COUNT_THOROUGH
)
settings.load_profile("full")


def deals_groups(config: pytest.Config) -> bool:
    """Whether tests are dealt out in groups (`--dist loadscope`), not one by one."""
    return bool(config.getoption("dist", default="no") == "loadscope")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    selection: str = config.getoption("markexpr", default="")
    return True if has_none_of(selection, collection_path) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if deals_groups(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long groups first; pytest-randomly has shuffled the files before."""
    if deals_groups(config):
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.fixture(autouse=True)
def sound_folders(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold that `oncelog log verify` finds nothing wrong in folders that were closed cleanly.

    A test that damages its folder on purpose is marked `damages`.
    """
    if "tmp_path" not in request.fixturenames or request.node.get_closest_marker("damages"):
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    yield
    assert faults(folder) == []


@pytest.fixture
def evidence_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have evidence written to a folder of the test, where there is none yet."""
    monkeypatch.setattr(evidence, "TABLE", tmp_path / "evidence.md")
    monkeypatch.setattr(evidence, "CACHE", tmp_path)
    evidence.TABLE.write_text(evidence.RULE)
    return tmp_path
