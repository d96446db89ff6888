"""What all tests share: the profiles of Hypothesis, and how tests are dealt out to processes."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.examples import EXAMPLES_COUNT_QUICK

# A test that is slow because the machine is busy has not failed.
settings.register_profile("full", settings(), deadline=None)
settings.register_profile("quick", settings(), deadline=None, max_examples=EXAMPLES_COUNT_QUICK)
settings.load_profile("full")

SHARING_FOLDERS = ("spark", "interop")
"""Folders whose tests stay in one process each: they share a broker, a JVM, a folder of jars. The
longest comes first, so that no process works alone at the end.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Name each test's group for `--dist loadgroup`, and put the long groups first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    yield
    if getattr(config.option, "loadgroup", False):
        items.sort(key=lambda item: _place(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """The shared folder, or the file, whose fixtures of module scope are then made once."""
    folder = item.path.parent.name
    return folder if folder in SHARING_FOLDERS else f"{folder}/{item.path.stem}"


def _place(group: str) -> int:
    return SHARING_FOLDERS.index(group) if group in SHARING_FOLDERS else len(SHARING_FOLDERS)
