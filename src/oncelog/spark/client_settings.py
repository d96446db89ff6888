"""Judges Kafka's settings that a user gives to the sink as `client_options`.

Settings copied from a Kafka producer, or from Spark's own sink, name much that the sink has an
argument for, or does by itself. Each of them has its effect, or is refused before the start, or is
named in one line of the log; none of them is dropped in silence.
"""

import dataclasses
import logging
from typing import Any, Final

from oncelog.client.admin import Admin
from oncelog.client.producer import Producer
from oncelog.client.settings.names import PREFIX
from oncelog.client.settings.table import BY_ROLE, WITHOUT_EFFECT, Role
from oncelog.client.transactions import TransactionDriver
from oncelog.core.config_definition import ConfigError
from oncelog.spark.errors import UsageError
from oncelog.spark.sink_options import BATCH_SIZE_BYTES, DELIVERY_TIMEOUT_MS, SinkOptions

__all__ = ["TIMEOUTS", "settled"]

TIMEOUTS: Final = frozenset({"default.api.timeout.ms", "max.block.ms"})
"""Timeouts of a running query's calls. The checks before its start have their own."""

_PRODUCER: Final = BY_ROLE[Role.PRODUCER]
_CONNECTION: Final = BY_ROLE[Role.ADMIN].keys() & BY_ROLE[Role.DRIVER].keys()
_KAFKAS: Final = {
    keyword: name
    for name, (keyword, _) in _PRODUCER.items()
    if name not in _CONNECTION or name == "bootstrap.servers"
}
"""Keyword of a producer -> Kafka's name, which is the same for all of our clients."""

_IGNORED: Final = (
    (_PRODUCER.keys() | BY_ROLE[Role.CONSUMER].keys() | WITHOUT_EFFECT)
    - _CONNECTION
    - TIMEOUTS
    - {"retries"}
)
"""Without effect, except those that `settled` takes."""

_OWN_PARTITIONS: Final = (
    "cannot be: the key's murmur2 decides, as by default in Java; for other partitions give the "
    "rows a column 'partition'"
)
_NEEDED: Final = "cannot be: a transaction needs acks=all, idempotence and retries; leave it out"

log = logging.getLogger("oncelog.spark")


def settled(options: SinkOptions) -> SinkOptions:
    """Return the options with those of `client_options` that are the sink's own taken out.

    What is left is for all clients of the sink alike. Raises `UsageError` for a setting that no
    client knows, that cannot have its effect here, or that contradicts an argument.
    """
    given = _named(options.client_options)
    try:
        options = _taken(given, options)
        _check_needed(given)
        ignored = sorted(name for name in given if name in _IGNORED)
        options = dataclasses.replace(
            options,
            client_options={name: v for name, v in given.items() if name not in _IGNORED},
        )
        _construct(options)
    except (ConfigError, TypeError, ValueError) as error:
        raise UsageError(f"client_options or bootstrap_servers are wrong: {error}") from error
    if ignored:
        log.warning("without effect on the sink: client_options %s", ", ".join(ignored))
    return options


def _named(client_options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings by Kafka's names without prefix; keywords that all clients have stay."""
    given: dict[str, Any] = {}
    for spelled, value in client_options.items():
        name = spelled.removeprefix(PREFIX)
        name = _KAFKAS.get(name, name)
        if name in given:
            raise UsageError(f"client_options: {name} is given twice")
        given[name] = value
    return given


def _taken(given: dict[str, Any], options: SinkOptions) -> SinkOptions:
    """Take out the settings that the sink has an argument for, and return their effect."""

    def take(name: str, argument: str, value: object, default: object = None) -> Any:
        if name not in given:
            return value
        found = _PRODUCER[name][1](name, given.pop(name))
        if found != value and value != default:
            raise UsageError(
                f"client_options: {name}={found} contradicts {argument}={value!r}; leave it out "
                f"and set {argument}"
            )
        return found

    take("bootstrap.servers", "bootstrap_servers", options.bootstrap_servers)
    take("transactional.id", "application_id", options.protocol.application_id)
    take("transaction.timeout.ms", "transaction_timeout_ms", options.transaction_timeout_ms)
    return dataclasses.replace(
        options,
        compression_type=take(
            "compression.type", "compression_type", options.compression_type, "none"
        ),
        batch_size=take("batch.size", "batch_size", options.batch_size, BATCH_SIZE_BYTES),
        delivery_timeout_ms=take(
            "delivery.timeout.ms", "", options.delivery_timeout_ms, DELIVERY_TIMEOUT_MS
        ),
    )


def _check_needed(given: dict[str, Any]) -> None:
    """Refuse values under which there is no transaction, or keys go to other partitions."""
    for name, wanted, text in (
        ("acks", ("all", "-1"), _NEEDED),
        ("enable.idempotence", (True,), _NEEDED),
        ("partitioner.ignore.keys", (False,), _OWN_PARTITIONS),
        ("partitioner.class", ("", None), _OWN_PARTITIONS),
    ):
        if name in given and _PRODUCER[name][1](name, given[name]) not in wanted:
            raise UsageError(f"client_options: {name}={given[name]} {text}")
        given.pop(name, None)
    if "retries" in given and _PRODUCER["retries"][1]("retries", given["retries"]) == 0:
        raise UsageError(f"client_options: retries=0 {_NEEDED}")


def _construct(options: SinkOptions) -> None:
    """Make each client once, as a run does, which connects to nothing; raises what that raises."""
    servers, application_id = options.bootstrap_servers, options.protocol.application_id
    Admin(servers, **options.client_options)
    TransactionDriver(servers, application_id, **options.client_options)
    Producer.attach(servers, application_id, 0, 0, **options.producer_options())
