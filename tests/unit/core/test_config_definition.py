"""One setting: its text read as a value, and written back."""

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.core.config_definition import (
    ConfigError,
    ConfigType,
    ConfigValue,
    Definition,
    as_bool,
    as_float,
    as_int,
    as_list,
    as_str,
    format_value,
)


@pytest.mark.parametrize(
    ("kind", "text", "value", "shown"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True, "true"),
        (ConfigType.BOOLEAN, "false", False, "false"),
        (ConfigType.SHORT, "-32768", -32768, "-32768"),
        (ConfigType.LONG, str(2**63 - 1), 2**63 - 1, str(2**63 - 1)),
        (ConfigType.DOUBLE, "0.5", 0.5, "0.5"),
        (ConfigType.LIST, "a, b", ("a", "b"), "a,b"),
        (ConfigType.LIST, "", (), ""),
        (ConfigType.STRING, " text ", "text", "text"),
    ],
)
def test_a_text_is_read_as_its_type_and_shown_as_kafka_shows_it(
    kind: ConfigType, text: str, value: Any, shown: str
) -> None:
    assert Definition("key", kind, None, "").parse(text) == value
    assert format_value(value) == shown


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.INT, "1.0"),
        (ConfigType.LONG, str(2**63)),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_a_text_of_another_type_is_refused_by_the_name_of_its_key(
    kind: ConfigType, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration key: "):
        Definition("key", kind, None, "").parse(text)


def test_a_value_that_fails_the_check_is_refused_with_its_sentence() -> None:
    definition = Definition(
        "key", ConfigType.INT, 1, "", lambda value: "too odd" if as_int(value) % 2 else None
    )
    assert definition.parse("2") == 2
    with pytest.raises(ConfigError, match="Invalid value 3 for configuration key: too odd"):
        definition.parse("3")


def test_an_unset_value_is_shown_as_nothing() -> None:
    assert format_value(None) is None


@pytest.mark.parametrize(
    ("narrow", "value"),
    [(as_int, "1"), (as_int, 1.0), (as_float, "1"), (as_bool, 1), (as_str, None), (as_list, "a")],
)
def test_a_value_of_another_type_is_not_taken_for_one(
    narrow: Callable[[ConfigValue], object], value: ConfigValue
) -> None:
    with pytest.raises(TypeError):
        narrow(value)
