"""The finder of configuration readers, on small sources."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.readers import effective_keys, find_reads


def reads(folder: Path, text: str) -> tuple[set[str], set[str]]:
    (folder / "source.py").write_text(dedent(text))
    broker, topic = find_reads(folder)
    return set(broker), set(topic)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('limit = config.get_int("a.b")', {"a.b"}),
        ('limit = self._broker.config.get_bool("a.b")', {"a.b"}),
        ('text = broker.config.get("a.b")', {"a.b"}),
        ('level = self._config.get("a.b")', {"a.b"}),
        ('text = settings.get("a.b")', set()),
        ('folders = self._values["a.b"]', {"a.b"}),
        ('self._values["a.b"] = 1', set()),
        ('p = "a" if big else "b"\nx = config.get_int(f"{p}.size")', {"a.size", "b.size"}),
        ('for key, work in (("a", f), ("b", g)):\n    config.get_int(key)', {"a", "b"}),
        ('x = [config.get_int(key) for key in ("a", "b")]', {"a", "b"}),
        ('KEY = "a"\ndef __init__(config): config.get_int(KEY)', {"a"}),
        ("shown = {key: config.get(key) for key in wanted}", set()),
        ("key = key if key else other\nconfig.get(key)", set()),
    ],
)
def test_a_broker_key_is_found_where_a_value_is_asked_for(
    tmp_path: Path, text: str, keys: set[str]
) -> None:
    assert reads(tmp_path, text) == (keys, set())


def test_a_topic_key_is_found_by_its_getter_and_by_a_partial_of_it(tmp_path: Path) -> None:
    text = """
        direct = config.topic_value(overrides, "a")
        value = partial(config.topic_int, overrides)
        other = value("b")
        unrelated = print("c")
    """
    assert reads(tmp_path, text) == (set(), {"a", "b"})


def test_a_value_stored_in_a_field_that_is_never_loaded_is_not_read(tmp_path: Path) -> None:
    text = """
        @dataclass
        class Settings:
            used: int
            unused: int
            positional: int = 0

            def __post_init__(self):
                check(self.unused)

        def __init__(self, config):
            self.settings = Settings(used=int(config.get_int("a")), unused=config.get_int("b"))
            self.other = Settings(config.get_int("c"), config.get_int("d"))
            self.kept = config.get_int("e")
            self.loaded = config.get_int("f")
            return self.settings.used + self.loaded + self.other
    """
    assert reads(tmp_path, text) == ({"a", "c", "f"}, set())


def test_a_function_without_a_reference_reads_nothing(tmp_path: Path) -> None:
    text = """
        def dead(config):
            return config.get_int("a") or dead(config)

        def live(config):
            return config.get_int("b")

        def remove_expired(self):
            return self.expiration_ms

        def __init__(self, config):
            self.expiration_ms = config.get_int("c")
            self.timer = live
    """
    assert reads(tmp_path, text) == ({"b"}, set())


def test_a_broker_key_has_an_effect_where_it_stands_in_for_a_topics(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text('age_ms = config.topic_value({}, "retention.ms")')
    broker, topic = effective_keys(find_reads(tmp_path))
    assert topic == {"retention.ms"}
    assert broker == {"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
