"""Kafka's exactly-once machinery in Python, and exactly-once pipelines on Spark on top of it.

The public names are few, and imported when first used, so that `import oncelog` costs nothing:

- `EmbeddedBroker`: a broker inside this process, and what keeps it from starting: `ConfigError`,
  `FolderInUse`, `AddressUnavailable`, `StorageFailure`; `EmbeddedCluster`: several.
- `Producer`, `Consumer`, `Admin`, `TransactionDriver`: asyncio clients for any Kafka broker, with
  their values (`NewTopic`, `TopicPartition`, `OffsetAndMetadata`) and errors
  (`oncelog.client.errors`).
- `oncelog.sync`: the same clients for callers without an event loop.
- `oncelog.spark`: exactly-once pipelines for PySpark (extra `spark`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog import sync
    from oncelog.broker.embedded import EmbeddedBroker
    from oncelog.broker.embedded_cluster import EmbeddedCluster
    from oncelog.client import (
        AbortableError,
        Admin,
        ClientError,
        Consumer,
        FatalError,
        FencedError,
        NewTopic,
        OffsetAndMetadata,
        Producer,
        RetriableError,
        TopicPartition,
        TransactionDriver,
    )
    from oncelog.core.config_definition import ConfigError
    from oncelog.core.errors import OncelogError
    from oncelog.runtime.disk import FolderInUse, StorageFailure
    from oncelog.runtime.network import AddressUnavailable

__version__ = "0.1.0"

__all__ = [
    "AbortableError",
    "AddressUnavailable",
    "Admin",
    "ClientError",
    "ConfigError",
    "Consumer",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "FatalError",
    "FencedError",
    "FolderInUse",
    "NewTopic",
    "OffsetAndMetadata",
    "OncelogError",
    "Producer",
    "RetriableError",
    "StorageFailure",
    "TopicPartition",
    "TransactionDriver",
    "__version__",
    "sync",
]

_ELSEWHERE = {
    "AddressUnavailable": "oncelog.runtime.network",
    "ConfigError": "oncelog.core.config_definition",
    "EmbeddedBroker": "oncelog.broker.embedded",
    "EmbeddedCluster": "oncelog.broker.embedded_cluster",
    "FolderInUse": "oncelog.runtime.disk",
    "OncelogError": "oncelog.core.errors",
    "StorageFailure": "oncelog.runtime.disk",
}

_OF_OTHERS = {
    "AIOKafkaAdminClient": "Admin",
    "AIOKafkaConsumer": "Consumer",
    "AIOKafkaProducer": "Producer",
    "AdminClient": "Admin",
    "DeserializingConsumer": "Consumer",
    "KafkaAdminClient": "Admin",
    "KafkaConsumer": "Consumer",
    "KafkaProducer": "Producer",
    "SerializingProducer": "Producer",
}
"""Classes of other clients, and ours."""

_MODULES = {"spark": "oncelog.spark", "sync": "oncelog.sync"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _OF_OTHERS:
        # Not an AttributeError, whose text `from oncelog import` drops.
        raise ImportError(f"oncelog has no {name}: use oncelog.{_OF_OTHERS[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value: object = getattr(import_module(_ELSEWHERE.get(name, "oncelog.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
