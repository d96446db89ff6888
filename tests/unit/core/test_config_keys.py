"""The table of settings agrees with itself."""

from oncelog.core.config_definition import format_value
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS


def test_every_default_passes_its_own_check_and_reads_back_from_its_own_text() -> None:
    for definition in BROKER_KEYS.values():
        if definition.default is not None:
            text = format_value(definition.default)
            assert text is not None
            assert definition.parse(text) == definition.default, definition.name


def test_every_synonym_of_a_topic_key_is_a_broker_key() -> None:
    for definition, synonyms in TOPIC_KEYS.values():
        assert synonyms, definition.name
        assert all(synonym.broker_key in BROKER_KEYS for synonym in synonyms)
    assert not UNSUPPORTED_TOPIC_KEYS & TOPIC_KEYS.keys()
