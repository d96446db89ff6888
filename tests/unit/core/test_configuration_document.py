"""docs/configuration.md says what the definitions say."""

from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS
from tests.support.configuration import DOCUMENT, document


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.support.configuration"


def test_every_key_stands_in_it() -> None:
    text = document()
    for name in [*BROKER_KEYS, *TOPIC_KEYS, *UNSUPPORTED_TOPIC_KEYS]:
        assert f"`{name}`" in text
