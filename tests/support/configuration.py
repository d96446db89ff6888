"""Writes docs/configuration.md, and the list of keys that nothing reads.

The keys come from `oncelog.core.config_keys`; whether one has an effect is found in the sources
(`tests.support.readers`). Run as ``python -m tests.support.configuration``; a unit test holds both
files to what this makes.
"""

from functools import cache

from oncelog.core.config_definition import ConfigSupport, ConfigType, Definition, format_value
from oncelog.core.config_keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    UNSUPPORTED_TOPIC_KEYS,
    only_false,
    only_pem,
)
from oncelog.core.group_keys import GROUP_KEYS
from oncelog.core.kafka_keys import REFUSED
from oncelog.core.limits import INT32_MAX, INT64_MAX
from tests.support.readers import SOURCES, effective_keys, find_reads

DOCUMENT = SOURCES.parents[1] / "docs" / "configuration.md"
UNREAD = SOURCES / "core" / "unread_keys.py"

UNREAD_TEXT = '''\
"""The config keys that are accepted and shown, but that no code reads so far.

Made by `python -m tests.support.configuration` from what the sources read.
"""

from typing import Final

__all__ = ["UNREAD_BROKER_KEYS", "UNREAD_TOPIC_KEYS"]

UNREAD_BROKER_KEYS: Final[frozenset[str]] = frozenset(%s)

UNREAD_TOPIC_KEYS: Final[frozenset[str]] = frozenset(%s)
'''

HEAD = """\
# Configuration

<!-- Made by `python -m tests.support.configuration` from src/oncelog/core/config_keys.py. -->

Names, types, units and defaults are Apache Kafka's; where a default differs, the meaning says so.
`oncelog serve` takes settings from a `.properties` file (`--config FILE`) and from
`--set KEY=VALUE`, later ones win; `EmbeddedBroker(config={...})` takes the same keys. A topic's own
settings are given when it is created, or with `oncelog topics alter TOPIC --config KEY=VALUE`.

A key that is unknown, or Kafka's but not in these tables, is refused by its name: nothing is
silently ignored. A key works unless its meaning begins with *No effect yet*: then it is accepted,
shown, and named at the start, but nothing reads it so far (that is found in the sources, not
claimed). *No limit* is the largest number of the type.

A key of one listener alone has `listener.name.` and the listener's name in lower case in front:
`listener.name.external.max.connections=100`. The other keys hold for the broker as a whole.
"""

TOPIC_HEAD = """
## Topics

What a topic does not set itself comes from the broker: the value of the first key in brackets that
is set there, or the default.

| Key | Default | Meaning |
|---|---|---|
"""

GROUP_HEAD = """
## Groups

What a consumer group (`group.protocol=consumer`) does not set itself comes from the broker: the key
of that name with `group.` before it. `oncelog configs alter group GROUP --config KEY=VALUE` sets
them, also for a group that does not exist yet; members hear them with their next heartbeats. A
value lies within the broker's `group.consumer.min.*` and `group.consumer.max.*`; a broker that
starts with narrower limits uses the nearest value that they allow, and says so. The settings of a
group stay when the group is deleted.

| Key | Default | Meaning |
|---|---|---|
"""

BROKER_HEAD = """
## Broker

| Key | Default | Meaning |
|---|---|---|
"""

NO_EFFECT_HEAD = """
## Accepted without effect

What cannot matter here: threads and buffers that Oncelog does not have, quotas of
replication, quorums of controllers, details of ZooKeeper's client, share and
streams groups. Such keys are named in one line at the start, then passed over: the
`server.properties` of Kafka 3.9, 4.3 and 4.4 starts a broker. A listener that
`controller.listener.names` names is left out.

"""

UNSUPPORTED_HEAD = """
## Refused

A broker does not start with keys that would change a guarantee. The error names all of them, each
with the reason, and for an unknown key the nearest known one. Kafka's default value of a refused
key is accepted if it changes nothing here.

| Key | Why |
|---|---|
"""

UNSUPPORTED_TOPIC_HEAD = """
These topic settings of Kafka's are refused when a topic is created with them:

"""


@cache
def read_keys() -> tuple[set[str], set[str]]:
    """(broker keys, topic keys) that the sources read with an effect."""
    return effective_keys(find_reads())


def passed_over_keys() -> set[str]:
    """Broker keys of what Oncelog does not have."""
    return {d.name for d in BROKER_KEYS.values() if d.support is ConfigSupport.NO_EFFECT}


def refused_keys() -> set[str]:
    """Keys whose one effect is that other values than the default are refused."""
    definitions = [*BROKER_KEYS.values(), *(definition for definition, _ in TOPIC_KEYS.values())]
    return {
        definition.name for definition in definitions if definition.check in (only_false, only_pem)
    }


def unread_module() -> str:
    """The whole of `oncelog.core.unread_keys`."""
    broker, topic = read_keys()
    unread = (
        BROKER_KEYS.keys() - broker - passed_over_keys() - refused_keys(),
        TOPIC_KEYS.keys() - topic - refused_keys(),
    )
    return UNREAD_TEXT % tuple(_as_set(sorted(names)) for names in unread)


def _as_set(names: list[str]) -> str:
    lines = "".join(f'        "{name}",\n' for name in names)
    return f"\n    {{\n{lines}    }}\n" if names else ""


def document() -> str:
    """The whole of docs/configuration.md."""
    broker_reads, topic_reads = read_keys()
    passed_over = passed_over_keys()
    broker = [d for d in BROKER_KEYS.values() if d.name not in passed_over]
    topics = [
        row(
            definition,
            ", ".join(f"`{s.broker_key}`" for s in synonyms),
            is_read=definition.name in topic_reads,
        )
        for definition, synonyms in TOPIC_KEYS.values()
    ]
    return (
        HEAD
        + TOPIC_HEAD
        + "".join(topics)
        + GROUP_HEAD
        + "".join(row(d, is_read=True) for d in GROUP_KEYS.values())
        + BROKER_HEAD
        + "".join(row(d, is_read=d.name in broker_reads) for d in broker)
        + NO_EFFECT_HEAD
        + "".join(f"- `{name}`\n" for name in sorted(passed_over))
        + UNSUPPORTED_HEAD
        + "".join(f"| {_family(start)} | {reason} |\n" for start, reason in REFUSED)
        + UNSUPPORTED_TOPIC_HEAD
        + "".join(f"- `{name}`\n" for name in sorted(UNSUPPORTED_TOPIC_KEYS))
    )


def _family(start: str) -> str:
    return f"`{start}*`" if start.endswith(".") else f"`{start}`"


def row(definition: Definition, broker_keys: str = "", *, is_read: bool) -> str:
    """One line of a table."""
    meaning = [
        "" if is_read else "*No effect yet.*",
        definition.doc.replace("|", "\\|"),
        f"({broker_keys})" if broker_keys else "",
    ]
    cells = [
        f"`{definition.name}`",
        f"{definition.type.name.lower()}: {default_text(definition)}",
        " ".join(filter(None, meaning)),
    ]
    return f"| {' | '.join(cells)} |\n"


def default_text(definition: Definition) -> str:
    """The default for a reader."""
    if definition.default in (INT32_MAX, INT64_MAX) and definition.type in (
        ConfigType.INT,
        ConfigType.LONG,
    ):
        return "no limit"
    text = format_value(definition.default)
    if text is None:
        return "unset"
    return f"`{text}`" if definition.type in (ConfigType.LIST, ConfigType.STRING) else text


def write() -> None:
    """Write both files."""
    DOCUMENT.write_text(document())
    UNREAD.write_text(unread_module())


if __name__ == "__main__":
    write()
