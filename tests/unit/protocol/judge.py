"""kio, the outside judge of our messages: its classes, and what it read, to compare with ours."""

import datetime
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kio.static.constants import EntityType

from oncelog.protocol.api import ADVERTISED, PRODUCE_VERSION_MIN, ApiKey
from oncelog.protocol.fields import OWN_TAGS, FieldShape, shapes

HAND_WRITTEN = (ApiKey.PRODUCE, ApiKey.FETCH)
CASES = [
    (ApiKey(api), version)
    for api, versions in ADVERTISED.items()
    if api not in HAND_WRITTEN
    for version in range(versions.min, versions.max + 1)
]
UNJUDGED = [
    (api, version)
    for api, version in CASES
    if find_spec(f"kio.schema.{api.schema_name}.v{version}") is None
]
"""Newer than kio; test_newest.py judges them by Kafka's own bytes."""

JUDGED = [case for case in CASES if case not in UNJUDGED]
NAMES = [f"{api.schema_name}-{version}" for api, version in CASES]
JUDGED_NAMES = [f"{api.schema_name}-{version}" for api, version in JUDGED]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_OLD_NAMES = {
    ("FindCoordinatorRequest", "key"): "coordinator_keys",
    ("DeleteTopicsRequest", "topic_names"): "topics",
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"): "topic_results",
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
}
"""Where Kafka's definitions have another name in old versions."""


def versions_of(api: ApiKey) -> range:
    low, high = ADVERTISED[api]
    return range(PRODUCE_VERSION_MIN if api is ApiKey.PRODUCE else low, high + 1)


@cache
def kio_class(api: ApiKey, version: int, kind: str) -> Any:
    """kio's class of a message in one version; `kind` is request or response."""
    module = import_module(f"kio.schema.{api.schema_name}.v{version}.{kind}")
    wanted = EntityType.request if kind == "request" else EntityType.response
    for candidate in vars(module).values():
        if getattr(candidate, "__type__", None) is wanted:
            return candidate
    raise LookupError(f"no {kind} in {module.__name__}")


def plain_of_kio(value: Any) -> Any:
    """What kio read, as names and numbers; tagged fields that are absent have kio's default."""
    if is_dataclass(value):
        return {
            _name(type(value), field.name): plain_of_kio(getattr(value, field.name))
            for field in fields(value)
        }
    if isinstance(value, tuple):
        return [plain_of_kio(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value


def plain_of_ours(value: Any, version: int) -> Any:
    """The same of what we read, in the shape that the version has on the wire."""
    plain: dict[str, Any] = {}
    for shape in shapes(value.__class__, version):
        found = getattr(value, shape.name)
        if shape.tag is not None and shape.tag >= OWN_TAGS:
            continue
        if shape.is_single and shape.inner is not None:
            plain.update(plain_of_ours(found[0], version))
        else:
            plain[shape.name.removesuffix("_ms")] = _plain(shape, found, version)
    return plain


def _plain(shape: FieldShape, found: Any, version: int) -> Any:
    if shape.is_single:
        return found[0]
    if shape.is_bare:
        return [item.name for item in found]
    if isinstance(found, tuple):
        return [_one(item, version) for item in found]
    if shape.name == "transaction_start_time_ms" and found == -1:
        return None  # kio's moment cannot be before 1970.
    return _one(found, version)


def _one(found: Any, version: int) -> Any:
    return plain_of_ours(found, version) if is_dataclass(found) else found


def _name(cls: type, name: str) -> str:
    return _OLD_NAMES.get((cls.__name__, name), name.removeprefix("v3_and_below_"))
