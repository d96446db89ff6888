"""Kafka's exactly-once machinery in Python, and exactly-once pipelines on Spark on top of it.

The public names are few, and imported when first used, so that `import oncelog` costs nothing:

- `EmbeddedBroker`: a broker inside this process.
- `Producer`, `Consumer`, `Admin`, `TransactionDriver`: asyncio clients for any Kafka broker, with
  their values (`NewTopic`, `TopicPartition`, `OffsetAndMetadata`) and errors
  (`oncelog.client.errors`).
- `oncelog.spark`: exactly-once pipelines for PySpark (extra `spark`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.embedded import EmbeddedBroker
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

__all__ = [
    "AbortableError",
    "Admin",
    "ClientError",
    "Consumer",
    "EmbeddedBroker",
    "FatalError",
    "FencedError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RetriableError",
    "TopicPartition",
    "TransactionDriver",
]

_ELSEWHERE = {"EmbeddedBroker": "oncelog.broker.embedded"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name == "spark":
        return import_module("oncelog.spark")
    if name not in __all__:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value: object = getattr(import_module(_ELSEWHERE.get(name, "oncelog.client")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
