"""Defines a config: its type, default, validator and text form.

`config_keys` lists the configs; `config` resolves their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from oncelog.core.errors import OncelogError

__all__ = [
    "ConfigError",
    "ConfigSupport",
    "ConfigType",
    "ConfigValue",
    "Definition",
    "Synonym",
    "as_bool",
    "as_float",
    "as_int",
    "as_list",
    "as_str",
    "format_value",
]


ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: a LIST is a tuple, and None is a key that is unset."""


class ConfigError(OncelogError):
    """Settings that cannot be accepted.

    Each of `problems` is one sentence for a person, and names the key.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ConfigType(Enum):
    """Type of a value; the numbers are DescribeConfigs' (`ConfigEntry.ConfigType`)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSupport(Enum):
    """The effect of a key here."""

    YES = "supported"
    NOT_YET = "has no effect yet"
    """Accepted and stored, without effect so far: no code reads it (`unread_keys`)."""
    NO_EFFECT = "has no effect"
    """A key of Kafka's that does not matter to a lone broker: it is logged and ignored."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One key.

    `default` None means unset; `check` returns what is wrong with a parsed value, or None.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    check: Callable[[ConfigValue], str | None] | None = None
    support: ConfigSupport = ConfigSupport.YES

    def parse(self, text: str) -> ConfigValue:
        """The typed value of `text`. Raises `ConfigError`."""
        value = _parse(self.name, self.type, text.strip())
        problem = self.check(value) if self.check is not None else None
        if problem is not None:
            raise ConfigError(
                f"Invalid value {text.strip()} for configuration {self.name}: {problem}"
            )
        return value


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key whose value is a topic key's default; `factor` converts its unit."""

    broker_key: str
    factor: int = 1


_INT_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


def _parse(name: str, kind: ConfigType, text: str) -> ConfigValue:
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: expected true or false"
            )
        return lowered == "true"
    if kind in _INT_RANGES:
        low, high = _INT_RANGES[kind]
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: not a number of type {kind.name}"
            ) from None
        if not low <= number <= high:
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: outside the range of {kind.name}"
            )
        return number
    if kind is ConfigType.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(
                f"Invalid value {text} for configuration {name}: not a number"
            ) from None
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def as_int(value: ConfigValue) -> int:
    """A value of type SHORT, INT or LONG. Raises `TypeError` for any other, as all of these do."""
    if isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is no whole number")


def as_float(value: ConfigValue) -> float:
    """A value of type DOUBLE, or of an integer type."""
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{value!r} is no number")


def as_bool(value: ConfigValue) -> bool:
    """A value of type BOOLEAN."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true nor false")


def as_str(value: ConfigValue) -> str:
    """A value of type STRING."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


def as_list(value: ConfigValue) -> tuple[str, ...]:
    """A value of type LIST."""
    if isinstance(value, tuple):
        return value
    raise TypeError(f"{value!r} is no list")


def format_value(value: ConfigValue) -> str | None:
    """A typed value as Kafka's tools print it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_double(value)
    return str(value)


def _format_double(value: float) -> str:
    """Format it as Java does: with an exponent from 10^7 on and below 10^-3."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # Few values need it, and its import takes a millisecond.

    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
