"""Writes docs/configuration.md from the definitions in `oncelog.core.config_keys`.

Run as ``python -m tests.support.configuration``; a unit test holds the file to what this makes.
"""

from pathlib import Path

from oncelog.core.config import ConfigType, Definition, Support, format_value
from oncelog.core.config_keys import BROKER_KEYS, TOPIC_KEYS, UNSUPPORTED_TOPIC_KEYS
from oncelog.core.limits import INT32_MAX, INT64_MAX

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Made by `python -m tests.support.configuration` from src/oncelog/core/config_keys.py. -->

Names, types, units and defaults are Apache Kafka's; where a default differs, the meaning says so.
`oncelog serve` takes settings from a `.properties` file (`--config FILE`) and from
`--set KEY=VALUE`, later ones win; `EmbeddedBroker(config={...})` takes the same keys. A topic's own
settings are given when it is created, or with `oncelog topics alter TOPIC --config KEY=VALUE`.

A key that is unknown, or Kafka's but not in these tables, is refused by its name: nothing is
silently ignored. The last column says what a key does: yes, it works; **not yet**, it is accepted,
shown, and named at the start, but nothing reads it so far.
"""

TOPIC_HEAD = """
## Topics

What a topic does not set itself comes from the broker: the value of the first key of the column
*Broker's key* that is set there, or the default.

| Key | Type | Default | Meaning | Broker's key | Supported |
|---|---|---|---|---|---|
"""

BROKER_HEAD = """
## Broker

| Key | Type | Default | Meaning | Supported |
|---|---|---|---|---|
"""

NO_EFFECT_HEAD = """
## Accepted without effect

Knobs for threads and buffers that Oncelog does not have, and the KRaft lines of every stock
`server.properties`. Each is named at the start, then passed over: a file made for Kafka works.

"""

UNSUPPORTED_HEAD = """
## Refused

These topic settings of Kafka's are refused when a topic is created with them:

"""


def document() -> str:
    """The whole file."""
    broker = [d for d in BROKER_KEYS.values() if d.support is not Support.NO_EFFECT]
    passed_over = [d.name for d in BROKER_KEYS.values() if d.support is Support.NO_EFFECT]
    topics = [
        row(definition, ", ".join(f"`{s.broker_key}`" for s in synonyms))
        for definition, synonyms in TOPIC_KEYS.values()
    ]
    return (
        HEAD
        + TOPIC_HEAD
        + "".join(topics)
        + BROKER_HEAD
        + "".join(row(definition) for definition in broker)
        + NO_EFFECT_HEAD
        + "".join(f"- `{name}`\n" for name in sorted(passed_over))
        + UNSUPPORTED_HEAD
        + "".join(f"- `{name}`\n" for name in sorted(UNSUPPORTED_TOPIC_KEYS))
    )


def row(definition: Definition, *more: str) -> str:
    """One line of a table."""
    cells = [
        f"`{definition.name}`",
        definition.type.name.lower(),
        default_text(definition),
        definition.doc.replace("|", "\\|"),
        *more,
        "yes" if definition.support is Support.YES else "**not yet**",
    ]
    return f"| {' | '.join(cells)} |\n"


def default_text(definition: Definition) -> str:
    """The default for a reader."""
    if definition.default in (INT32_MAX, INT64_MAX) and definition.type in (
        ConfigType.INT,
        ConfigType.LONG,
    ):
        return f"{definition.default} (no limit)"
    text = format_value(definition.default)
    if text is None:
        return "unset"
    return f"`{text}`" if definition.type in (ConfigType.LIST, ConfigType.STRING) else text


if __name__ == "__main__":
    DOCUMENT.write_text(document())
