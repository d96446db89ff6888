"""Parses and checks the source's options. This module knows neither Spark nor the cluster."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast

from oncelog.client.requests import EARLIEST, LATEST
from oncelog.client.settings import Role, client_options, hide_secrets
from oncelog.core.config_definition import ConfigError
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.source_offsets import IDENTITY, Places, parse_places
from oncelog.spark.source_settings import KAFKA_REFUSED, OPTIONS

__all__ = ["Bound", "SourceOptions"]

T = TypeVar("T", bound=str)

Isolation = Literal["read_committed", "read_uncommitted"]
Where = Literal["earliest", "latest", "group", "offsets", "times", "time"]
NoMatch = Literal["error", "latest"]

PREFIX: Final = "kafka."

POLL_TIMEOUT_MS: Final = 120_000
TRIGGER_DELAY_MS: Final = 15 * 60_000
FETCH_OFFSET_ATTEMPTS: Final = 3
FETCH_OFFSET_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a read, as set by the option `name`.

    `places` holds offsets (-2 earliest, -1 latest) for ``offsets``, and timestamps in ms for
    ``times``.
    """

    name: str
    where: Where
    places: Places = field(default_factory=dict)
    time_ms: int = 0


@dataclass(frozen=True)
class SourceOptions:
    """The options of ``format("oncelog")``, checked.

    Exactly one of `topics`, `pattern` and `assigned` is not empty. `kafka` holds Kafka's configs by
    Kafka's names; its text hides secrets.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: frozenset[TopicPartition]
    starting: Bound | None
    ending: Bound | None
    on_no_match: NoMatch
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    isolation_level: Isolation
    group_id: str | None
    fetch_offset_attempts: int
    fetch_offset_interval_ms: int
    poll_timeout_ms: int
    kafka: Mapping[str, Any]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Parse and check the options.

        Raises `UsageError`, also for an unknown option.
        """
        given = _GivenOptions({name.lower(): value for name, value in options.items()})
        given.check_names()
        topics, pattern, assigned = _subscription(given)
        servers = given.either("bootstrapServers", "kafka.bootstrap.servers")
        if not servers:
            raise UsageError("option bootstrapServers (or kafka.bootstrap.servers) is missing")
        parsed = cls(
            bootstrap_servers=servers,
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=_bound(given, "starting"),
            ending=_bound(given, "ending"),
            on_no_match=given.choice(
                "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            ),
            max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=given.number("minOffsetsPerTrigger"),
            max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS),
            min_partitions=given.number("minPartitions"),
            max_records_per_partition=given.number("maxRecordsPerPartition"),
            include_headers=given.flag("includeHeaders", default=False),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            isolation_level=_isolation(given),
            group_id=given.either("groupId", "kafka.group.id"),
            fetch_offset_attempts=given.number("fetchOffset.numRetries") or FETCH_OFFSET_ATTEMPTS,
            fetch_offset_interval_ms=given.number("fetchOffset.retryIntervalMs")
            or FETCH_OFFSET_INTERVAL_MS,
            poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
            kafka=hide_secrets(given.kafka()),
        )
        parsed._check_together()
        return parsed

    def check_stream(self) -> None:
        """Raise `UsageError` for an option that a streaming query cannot have."""
        if self.ending is not None:
            raise UsageError(f"option {self.ending.name} is not valid in a streaming query")

    def check_batch(self) -> None:
        """Raise `UsageError` for an option that a batch query cannot have, as in Spark's source."""
        for bound, word in ((self.starting, "latest"), (self.ending, "earliest")):
            if bound is None:
                continue
            number = LATEST if word == "latest" else EARLIEST
            if bound.where == word or (
                bound.where == "offsets" and number in bound.places.values()
            ):
                raise UsageError(f"option {bound.name} cannot be {word} in a batch read")
        start, end = self.starting, self.ending
        if start is None or end is None or start.where != end.where:
            return
        for tp, begin in start.places.items():
            if 0 <= end.places.get(tp, begin) < begin:
                raise UsageError(
                    f"{start.name} of {tp} is {begin}, after {end.name}, {end.places[tp]}"
                )

    def client_settings(self, role: Role) -> dict[str, Any]:
        """Return Kafka's configs as keyword arguments of a client.

        Raises `UsageError` for an unknown one.
        """
        try:
            return client_options(role, self.kafka)
        except ConfigError as error:
            raise UsageError(f"option kafka.{error}") from None

    def _check_together(self) -> None:
        self.client_settings(Role.CONSUMER)
        if self.starting is not None and self.starting.where == "group" and not self.group_id:
            raise UsageError(
                "startingOffsets=group needs the option groupId (the application_id of the sink)"
            )
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise UsageError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")


class _GivenOptions:
    """The options by lower-case name: Spark ignores case."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name: value for name, value in values.items() if name != "path"}

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower(), "").strip() or None

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def either(self, *names: str) -> str | None:
        return next((value for name in names if (value := self.get(name))), None)

    def check_names(self) -> None:
        """Raise `UsageError` for the first name that is unknown or refused."""
        names = {option.name.lower(): option.name for option in OPTIONS}
        names["bootstrapservers"] = "bootstrapServers"
        for name in sorted(self._values):
            if name.startswith(PREFIX):
                if reason := KAFKA_REFUSED.get(name.removeprefix(PREFIX)):
                    raise UsageError(f"option {name!r} is not supported: {reason}")
            elif name not in names:
                near = difflib.get_close_matches(name, names, 1, 0.6)
                hint = f"did you mean {names[near[0]]!r}?" if near else _KNOWN_WHERE
                raise UsageError(f"option {name!r} is unknown; {hint}")

    def kafka(self) -> dict[str, str]:
        """Return Kafka's configs, without those that are options of the source too."""
        ours = {option.name for option in OPTIONS}
        return {
            name: value
            for name, value in self._values.items()
            if name.startswith(PREFIX) and name not in ours
        }

    def number(self, name: str) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise UsageError(f"option {name} is {value!r}; it must be a number from 1 on")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        word = "true" if default else "false"
        return self.choice(name, ("true", "false"), word) == "true"

    def choice(self, name: str, words: tuple[T, ...], default: T) -> T:
        value = (self.get(name) or default).lower()
        for word in words:
            if value == word:
                return word
        raise UsageError(f"option {name} is {value!r}; it must be {' or '.join(words)}")

    def duration_ms(self, name: str, default_ms: int) -> int:
        value = self.get(name)
        if value is None:
            return default_ms
        match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
        if match is None or match[2] not in _UNIT_MS:
            raise UsageError(f"option {name} is {value!r}; it must be a time like 30s, 15m or 2h")
        return int(int(match[1]) * _UNIT_MS[match[2]])


_UNIT_MS: Final = {
    "": 1,
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

_KNOWN_WHERE: Final = 'the section "Source options" of docs/spark.md lists them'


def _subscription(
    given: _GivenOptions,
) -> tuple[tuple[str, ...], str | None, frozenset[TopicPartition]]:
    names = [name for name in ("assign", "subscribe", "subscribePattern") if given.has(name)]
    if len(names) != 1:
        found = f"not {' and '.join(names)}" if names else "none is there"
        raise UsageError(f"give one of the options assign, subscribe and subscribePattern; {found}")
    text = given.get(names[0])
    if text is None:
        raise UsageError(f"option {names[0]} is empty")
    if names[0] == "assign":
        return (), None, _assigned(text)
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise UsageError(f"option subscribe is {text!r}, which names no topic")
        return topics, None, frozenset()
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"option subscribePattern is {text!r}: {error}") from None
    return (), text, frozenset()


def _assigned(text: str) -> frozenset[TopicPartition]:
    try:
        value = json.loads(text)
        partitions = frozenset(
            TopicPartition(topic, index) for topic, indexes in value.items() for index in indexes
        )
        valid = bool(partitions) and all(
            type(tp.partition) is int and tp.partition >= 0 for tp in partitions
        )
    except (ValueError, AttributeError, TypeError):
        valid = False
    if not valid:
        raise UsageError(f"option assign is {text!r}; it must be JSON like " + '{"topic":[0,1]}')
    return partitions


def _bound(given: _GivenOptions, side: Literal["starting", "ending"]) -> Bound | None:
    """Return the bound.

    As in Spark one timestamp precedes timestamps by partition, and those offsets.
    """
    name = f"{side}Timestamp"
    if (text := given.get(name)) is not None:
        if not text.isdecimal():
            raise UsageError(f"option {name} is {text!r}; it must be milliseconds since 1970")
        return Bound(name, "time", time_ms=int(text))
    name = f"{side}OffsetsByTimestamp"
    if (text := given.get(name)) is not None:
        return Bound(name, "times", _places(name, text, 0))
    name = f"{side}Offsets"
    text = given.get(name)
    if text is None:
        return None
    word = text.lower()
    if word in ("earliest", "latest") or (word == "group" and side == "starting"):
        return Bound(name, cast(Where, word))
    return Bound(name, "offsets", _places(name, text, EARLIEST))


def _places(name: str, text: str, least: int) -> Places:
    try:
        value = json.loads(text)
        value.pop(IDENTITY, None)
        places = parse_places(value)
        valid = all(type(offset) is int and offset >= least for offset in places.values())
    except (ValueError, AttributeError, TypeError):
        valid = False
    if not valid:
        words = "" if name.endswith("Timestamp") else "earliest, latest or "
        example = '{"topic":{"0":23,"1":-2}}' if words else '{"topic":{"0":1700000000000}}'
        raise UsageError(f"option {name} is {text!r}; it must be {words}JSON like {example}")
    return places


def _isolation(given: _GivenOptions) -> Isolation:
    name = "isolationLevel" if given.get("isolationLevel") else "kafka.isolation.level"
    levels: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    return given.choice(name, levels, "read_committed")
