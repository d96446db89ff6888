"""docs/configuration.md, and the list of keys that nothing reads, are made from the sources."""

from __future__ import annotations

import pytest

from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS
from oncelog.core.group_keys import GROUP_KEYS
from tests.support.configuration import (
    DOCUMENT,
    UNREAD,
    document,
    passed_over_keys,
    read_keys,
    unread_module,
)

pytestmark = pytest.mark.slow  # Every source file is parsed.

HINT = "run: python -m tests.support.configuration"


def test_the_document_says_what_the_definitions_and_their_readers_say() -> None:
    assert DOCUMENT.read_text() == document(), HINT


def test_every_key_stands_in_the_document() -> None:
    text = document()
    for name in [*BROKER_KEYS, *TOPIC_KEYS, *GROUP_KEYS, *UNSUPPORTED_TOPIC_KEYS]:
        assert f"`{name}`" in text


def test_a_key_is_named_at_the_start_if_and_only_if_nothing_reads_it() -> None:
    assert UNREAD.read_text() == unread_module(), HINT


@pytest.mark.soak
def test_nothing_reads_a_key_that_is_passed_over() -> None:
    assert not passed_over_keys() & read_keys()[0]
    assert passed_over_keys() < BROKER_KEYS.keys()
