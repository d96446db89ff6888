"""`.properties` files, as `java.util.Properties` reads them."""

from __future__ import annotations

import pytest

from oncelog.cli.properties import parse_properties, parse_setting
from oncelog.core.config_definition import ConfigError


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a = 1  \n\tb\t:\t2", {"a": "1  ", "b": "2"}),
        ("# comment = no\n! neither=this\n\n   # nor this\na=#kept", {"a": "#kept"}),
        ("a=one,\\\n    two,\\\n  three\nb=2", {"a": "one,two,three", "b": "2"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a=ends with two\\\\\nb=2", {"a": "ends with two\\", "b": "2"}),
        (r"path=C\:\\temp\ttab\u0041", {"path": "C:\\temp\ttabA"}),
        (r"a\=b\ c\:d=1", {"a=b c:d": "1"}),
        ("flag\nempty=\n", {"flag": "", "empty": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==1", {"a": "=1"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_files_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(ConfigError, match="malformed"):
        parse_properties(r"a=\u00zz")


def test_a_setting_is_split_at_its_first_equals_sign() -> None:
    assert parse_setting("a=b=c") == ("a", "b=c")
    assert parse_setting(" a = b ") == ("a", "b")


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        parse_setting(text)
