"""Resolves the values of configs, and refuses unsupported ones.

`config_definition` defines a config, `config_keys` lists them all.

Names, defaults and units are Kafka's (D10). A `BrokerConfig` is created once from text and never
changes. A topic has only its own overrides; any other value is the broker's value of the synonymous
key. A key that Kafka does not have, or that is not supported here, is refused by name, and one that
has no effect here is logged.

This module must not read files or the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from difflib import get_close_matches
from enum import Enum
from functools import partial
from typing import NamedTuple

from oncelog.core.acl import AuthorizerConfig, parse_super_users
from oncelog.core.config_definition import (
    ConfigError,
    ConfigSupport,
    ConfigValue,
    Synonym,
    as_bool,
    as_float,
    as_int,
    as_list,
    as_str,
    format_value,
)
from oncelog.core.config_keys import (
    AUTHORIZER_KEYS,
    BROKER_KEYS,
    LISTENER_KEYS,
    MECHANISM_KEYS,
    TOPIC_KEYS,
    UNSUPPORTED_TOPIC_KEYS,
)
from oncelog.core.kafka_keys import EXPLAINED, PASSED_OVER, is_harmless, refusal
from oncelog.core.listeners import (
    LISTENER_PREFIX,
    Endpoint,
    ListenerConfig,
    Listeners,
    inter_broker_listener,
    parse_listener,
    protocols_of,
)
from oncelog.core.sasl import MECHANISMS
from oncelog.core.sasl_listener import BrokerLogin, SaslListener, broker_login, sasl_listener

__all__ = [
    "BrokerConfig",
    "ConfigSource",
    "Endpoint",
    "SynonymValue",
    "check_topic_overrides",
    "parse_listener",
    "topic_warnings",
]


class ConfigSource(Enum):
    """The source of a value.

    The numbers are DescribeConfigs' (`DescribeConfigsResponse.ConfigSource`).
    """

    DYNAMIC_TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class SynonymValue(NamedTuple):
    """One place that could have given a value; DescribeConfigs lists them, best first."""

    name: str
    value: str | None
    source: ConfigSource


class BrokerConfig:
    """A broker's configs: the given values, checked and typed, and defaults for all others.

    `warnings` has sentences about configs that were accepted but have no effect. All invalid
    configs are refused at once, by one `ConfigError`. Without an `authorizer` there are no ACLs.
    """

    __slots__ = (
        "_given",
        "_of_listeners",
        "_values",
        "authorizer",
        "broker_login",
        "inter_broker_listener",
        "listeners",
        "metrics_address",
        "sasl_listeners",
        "warnings",
    )

    listeners: tuple[ListenerConfig, ...]
    sasl_listeners: Mapping[str, SaslListener]
    """By name those on which clients authenticate."""
    inter_broker_listener: str
    broker_login: BrokerLogin | None
    """Who this broker is to the others, where it has to tell."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(given or {})
        self.warnings: list[str] = []
        self._values = {name: definition.default for name, definition in BROKER_KEYS.items()}
        self._of_listeners: dict[str, dict[str, ConfigValue]] = {}
        self.metrics_address: Endpoint | None = None
        self.authorizer: AuthorizerConfig | None = None
        self.sasl_listeners = {}
        self.broker_login = None
        checks: list[Callable[[], None]]
        checks = [partial(self._take, name, text) for name, text in self._given.items()]
        checks += [
            self._find_authorizer,
            self._check_roles,
            self._find_listeners,
            self._check_folders,
            self._check_times,
        ]
        checks += [self._check_group_limits, self._check_replication]
        problems = [problem for check in checks for problem in _problems(check)]
        if problems:
            raise ConfigError(*problems)
        if "node.id" not in self._given and as_int(self._values["broker.id"]) >= 0:
            self._values["node.id"] = self._values["broker.id"]
        self._name_what_was_passed_over()

    def _take(self, name: str, text: str) -> None:
        definition = BROKER_KEYS.get(name)
        if name.startswith(LISTENER_PREFIX):
            return  # `_find_listeners` takes it, once the names of the listeners are known.
        if definition is not None:
            self._values[name] = definition.parse(text)
            if definition.support is ConfigSupport.NOT_YET:
                self.warnings.append(f"{name} {definition.support.value}")
        elif not is_harmless(name, text):
            raise ConfigError(_why_refused(name))

    def _find_authorizer(self) -> None:
        """Find the settings of the authorizer, if there is one."""
        if self._values["authorizer.class.name"]:
            self.authorizer = AuthorizerConfig(
                parse_super_users(as_str(self._values["super.users"])),
                as_bool(self._values["allow.everyone.if.no.acl.found"]),
            )
            return
        unused = [name for name in AUTHORIZER_KEYS if self._values[name]]
        self.warnings += [
            f"{name} has no effect: authorizer.class.name names no authorizer" for name in unused
        ]

    def _check_roles(self) -> None:
        roles = as_list(self._values["process.roles"])
        if "broker" not in roles:
            raise ConfigError(
                f"process.roles={','.join(roles)} starts no broker: no controller is needed, so "
                "use the file of a broker"
            )

    def _find_listeners(self) -> None:
        names = Listeners(
            protocols_of(as_list(self._values["listener.security.protocol.map"] or ())),
            as_list(self._values["controller.listener.names"]),
        )
        listeners = as_list(self._values["listeners"])
        advertised = self._values["advertised.listeners"]
        self.listeners = names.own(listeners, None if advertised is None else as_list(advertised))
        self.inter_broker_listener = inter_broker_listener(
            self.listeners,
            self.get_str("inter.broker.listener.name"),
            self.get_str("security.inter.broker.protocol"),
        )
        self._take_keys_of_listeners(names)
        if not any(listener.has_tls for listener in self.listeners):
            unused = [name for name in self._given if name.startswith("ssl.")]
            self.warnings += [f"{name} has no effect: no listener has TLS" for name in unused]
        metrics = self._values["oncelog.metrics.address"]
        if metrics is not None:
            self.metrics_address = parse_listener("oncelog.metrics.address", as_str(metrics))
        self.warnings += [
            f"the listener {text} is ignored: there is no quorum of controllers, the broker keeps "
            "the metadata itself"
            for text in filter(names.is_controllers, listeners)
        ]

    def _take_keys_of_listeners(self, names: Listeners) -> None:
        """Take ``listener.name.<name>.<key>``; those of a controller's listener have no effect."""
        problems = []
        for name, text in self._given.items():
            if not name.startswith(LISTENER_PREFIX):
                continue
            owner = next((each for each in self.listeners if name.startswith(each.prefix)), None)
            if owner is None:
                listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
                if not names.is_controllers(f"{listener}://"):
                    known = ", ".join(each.prefix for each in self.listeners)
                    problems.append(f"{name} names no listener of this broker: {known}")
                continue
            key = name.removeprefix(owner.prefix)
            mechanism, _, own = key.partition(".")
            if mechanism.upper() in MECHANISMS and own in MECHANISM_KEYS:
                value = MECHANISM_KEYS[own].parse(text)
                self._of_listeners.setdefault(owner.name, {})[key] = value
                continue
            if key not in LISTENER_KEYS:
                is_broker_wide = key in BROKER_KEYS
                reason = "it holds for the broker as a whole" if is_broker_wide else refusal(key)
                problems.append(f"{name} is not supported: {reason or 'there is no such key'}")
                continue
            found = _problems(partial(self._take_of_listener, owner.name, key, text))
            problems += [f"listener.name.{owner.name.lower()}: {problem}" for problem in found]
        if problems:
            raise ConfigError(*problems)
        self._check_sasl()

    def _check_sasl(self) -> None:
        listeners = {each.name: each for each in self.listeners if each.has_sasl}
        self._ask_for_no_certificates(listeners.values())
        self.sasl_listeners = {
            name: sasl_listener(each.prefix, partial(self._value_within, name))
            for name, each in listeners.items()
        }

        if (own := listeners.get(self.inter_broker_listener)) is not None:
            mechanisms = self.sasl_listeners[own.name].mechanisms
            value_of = partial(self._value_within, own.name)
            self.broker_login = broker_login(own.prefix, mechanisms, value_of)

    def _ask_for_no_certificates(self, listeners: Iterable[ListenerConfig]) -> None:
        """Have `ssl.client.auth` concern listeners with SASL only as a key of theirs, as Kafka."""
        for listener in listeners:
            own = self._of_listeners.setdefault(listener.name, {})
            if listener.has_tls and "ssl.client.auth" not in own:
                own["ssl.client.auth"] = "none"
                if self._values["ssl.client.auth"] != "none":
                    self.warnings.append(
                        f"ssl.client.auth is not for the listener {listener.name}, which has SASL: "
                        f"{listener.prefix}ssl.client.auth would be"
                    )

    def _value_within(self, listener: str, key: str, mechanism: str) -> ConfigValue:
        return self.within(listener, mechanism).get(key)

    def _take_of_listener(self, listener: str, key: str, text: str) -> None:
        self._of_listeners.setdefault(listener, {})[key] = BROKER_KEYS[key].parse(text)

    def _check_folders(self) -> None:
        key = "log.dirs" if self._values["log.dirs"] else "log.dir"
        folders = as_list(self._values[key])
        if not folders or not all(folders):
            raise ConfigError(f"{key} has to name at least one folder")
        if len(set(folders)) != len(folders):
            raise ConfigError(f"{key} names a folder more than once")

    def _check_group_limits(self) -> None:
        """Check that the configs of consumer groups are within their own limits, as Kafka does."""
        limited = {
            "session.timeout.ms": (
                self.get_int("group.consumer.min.session.timeout.ms"),
                self.get_int("group.consumer.session.timeout.ms"),
                self.get_int("group.consumer.max.session.timeout.ms"),
            ),
            "heartbeat.interval.ms": (
                self.get_int("group.consumer.min.heartbeat.interval.ms"),
                self.get_int("group.consumer.heartbeat.interval.ms"),
                self.get_int("group.consumer.max.heartbeat.interval.ms"),
            ),
            "assignment.interval.ms": (
                self.get_int("group.consumer.min.assignment.interval.ms"),
                self.get_int("group.consumer.assignment.interval.ms"),
                self.get_int("group.consumer.max.assignment.interval.ms"),
            ),
        }
        wrong = [
            f"group.consumer.{name} ({value}) must be between group.consumer.min.{name} ({low}) "
            f"and group.consumer.max.{name} ({high})"
            for name, (low, value, high) in limited.items()
            if not low <= value <= high
        ]
        if wrong:
            raise ConfigError(*wrong)

    def _check_times(self) -> None:
        """Check times as Kafka does, whichever of the synonymous keys has the value."""
        retention_ms = self.topic_int({}, "retention.ms")
        if retention_ms == 0:
            raise ConfigError(
                "log.retention.ms must be unlimited (-1) or, equal or greater than 1; so must "
                "log.retention.minutes and log.retention.hours"
            )
        if self.topic_int({}, "segment.ms") < 1:
            raise ConfigError("log.roll.ms must be greater than or equal to 1")
        if self.topic_int({}, "segment.jitter.ms") < 0:
            raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")

    def _check_replication(self) -> None:
        """Check that a follower's waits fit each other, as Kafka does."""
        wait_ms = self.get_int("replica.fetch.wait.max.ms")
        problems = [
            f"replica.fetch.wait.max.ms ({wait_ms}) must be at most {name} ({limit_ms})"
            for name in ("replica.lag.time.max.ms", "replica.socket.timeout.ms")
            if wait_ms > (limit_ms := self.get_int(name))
        ]
        if problems:
            raise ConfigError(*problems)

    def _name_what_was_passed_over(self) -> None:
        """Add one warning for all keys without effect; Kafka's sample files have a dozen."""
        passed_over = [name for name in self._given if name in PASSED_OVER]
        self.warnings += [EXPLAINED[name] for name in passed_over if name in EXPLAINED]
        names = sorted(name for name in passed_over if name not in EXPLAINED)
        if names:
            have = "setting has" if len(names) == 1 else "settings have"
            self.warnings.append(
                f"{len(names)} {have} no effect on this broker: {', '.join(names)}"
            )

    def is_given(self, name: str) -> bool:
        """Whether a value was configured, not only the default."""
        return name in self._given

    def get_int(self, name: str) -> int:
        """The value of a key of type SHORT, INT or LONG."""
        return as_int(self._values[name])

    def get_bool(self, name: str) -> bool:
        """The value of a key of type BOOLEAN."""
        return as_bool(self._values[name])

    def get_str(self, name: str) -> str | None:
        """The value of a key of type STRING; None when it is unset."""
        value = self._values[name]
        return None if value is None else as_str(value)

    def get_float(self, name: str) -> float:
        """The value of a key of type DOUBLE."""
        return as_float(self._values[name])

    def get(self, name: str) -> ConfigValue:
        """The value of any key; None when it is unset."""
        return self._values[name]

    def get_list(self, name: str) -> tuple[str, ...]:
        """The value of a key of type LIST; empty when it is unset."""
        return as_list(self._values[name] or ())

    def of_listener(self, listener: str) -> Mapping[str, ConfigValue]:
        """The values that are of one listener alone, as ``listener.name.<name>.<key>``."""
        return self._of_listeners.get(listener, {})

    def within(self, listener: str, mechanism: str = "") -> BrokerConfig:
        """The configs as they are for one listener, or for one of its mechanisms of SASL."""
        own = self.of_listener(listener)
        narrower = {f"{mechanism.lower()}.{key}": key for key in MECHANISM_KEYS}
        of_mechanism = {narrower[key]: own[key] for key in narrower.keys() & own.keys()}
        found = copy(self)
        values = {**dict.fromkeys(MECHANISM_KEYS), **self._values, **own, **of_mechanism}
        found._values = values  # noqa: SLF001 - its own copy
        return found

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The log directories (`log.dirs`, else `log.dir`).

        One of them holds the metadata too, where `oncelog.metadata.file` does not say otherwise.
        """
        return as_list(self._values["log.dirs"] or self._values["log.dir"])

    def broker_synonyms(self, name: str) -> tuple[SynonymValue, ...]:
        """Return the possible sources of a broker key's value, best first."""
        found = []
        if name in self._given:
            found.append(SynonymValue(name, self._given[name], ConfigSource.STATIC_BROKER))
        default = BROKER_KEYS[name].default
        found.append(SynonymValue(name, format_value(default), ConfigSource.DEFAULT))
        return tuple(found)

    def topic_value(self, overrides: Mapping[str, str], name: str) -> ConfigValue:
        """A topic's value of `name`.

        Its own override, else the broker's value of the synonymous key.
        """
        definition, synonyms = TOPIC_KEYS[name]
        if name in overrides:
            return definition.parse(overrides[name])
        for synonym in synonyms:
            value = self._values[synonym.broker_key]
            if value is not None and (synonym.broker_key in self._given or synonym is synonyms[-1]):
                return _scaled(value, synonym)
        return definition.default

    def topic_int(self, overrides: Mapping[str, str], name: str) -> int:
        """A topic's value of a key of type INT or LONG."""
        return as_int(self.topic_value(overrides, name))

    def topic_float(self, overrides: Mapping[str, str], name: str) -> float:
        """A topic's value of a key of type DOUBLE."""
        return as_float(self.topic_value(overrides, name))

    def topic_str(self, overrides: Mapping[str, str], name: str) -> str:
        """A topic's value of a key of type STRING."""
        return as_str(self.topic_value(overrides, name))

    def topic_list(self, overrides: Mapping[str, str], name: str) -> tuple[str, ...]:
        """A topic's value of a key of type LIST."""
        return as_list(self.topic_value(overrides, name))

    def topic_synonyms(self, overrides: Mapping[str, str], name: str) -> tuple[SynonymValue, ...]:
        """Return the possible sources of a topic key's value, best first, each in its own unit."""
        keys = [synonym.broker_key for synonym in TOPIC_KEYS[name][1]]
        found = []
        if name in overrides:
            found.append(SynonymValue(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        for key in keys:
            if key in self._given:
                found.append(SynonymValue(key, self._given[key], ConfigSource.STATIC_BROKER))
        for key in keys:
            default = BROKER_KEYS[key].default
            if default is not None:
                found.append(SynonymValue(key, format_value(default), ConfigSource.DEFAULT))
        return tuple(found)


def _problems(check: Callable[[], None]) -> tuple[str, ...]:
    try:
        check()
    except ConfigError as error:
        return error.problems
    return ()


def _why_refused(name: str) -> str:
    topic_key = TOPIC_KEYS.get(name)
    if topic_key is not None:
        synonym = topic_key[1][0].broker_key
        return f"{name} is a topic's key: the broker's default for it is {synonym}"
    reason = refusal(name)
    if reason is not None:
        return f"{name} is not supported: {reason}"
    near = get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.8)
    return f"{name} is not a known configuration key" + "".join(
        f": did you mean {key}?" for key in near
    )


def _scaled(value: ConfigValue, synonym: Synonym) -> ConfigValue:
    if synonym.factor == 1:
        return value
    # A negative limit means no limit in every unit.
    number = as_int(value)
    return number * synonym.factor if number >= 0 else number


def check_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Check the configuration that a topic is created with.

    Raises `ConfigError` for the first bad entry.
    """
    for name, text in overrides.items():
        if name in UNSUPPORTED_TOPIC_KEYS:
            raise ConfigError(f"{name} is a key of Apache Kafka that Oncelog does not support")
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}")
        if text is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        TOPIC_KEYS[name][0].parse(text)
    lags = [
        as_int(TOPIC_KEYS[name][0].parse(overrides.get(name) or str(TOPIC_KEYS[name][0].default)))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    ]
    if lags[0] > lags[1]:
        raise ConfigError(
            f"conflict topic config setting max.compaction.lag.ms ({lags[1]}) "
            f"< min.compaction.lag.ms ({lags[0]})"
        )


def topic_warnings(overrides: Mapping[str, str]) -> list[str]:
    """Return one sentence per config of a topic that was accepted but has no effect."""
    return [
        f"{name} {TOPIC_KEYS[name][0].support.value}"
        for name in overrides
        if TOPIC_KEYS[name][0].support is not ConfigSupport.YES
    ]
