"""The handler of each API takes its API's request and returns its API's response, by its types."""

import importlib
import re

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.protocol.api import ApiKey

READ_BYTES = {ApiKey.PRODUCE, ApiKey.FETCH}
FORWARDED = """
    CREATE_TOPICS DELETE_TOPICS CREATE_PARTITIONS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS
    CREATE_ACLS DELETE_ACLS ELECT_LEADERS ALTER_PARTITION_REASSIGNMENTS
    LIST_PARTITION_REASSIGNMENTS UPDATE_FEATURES UNREGISTER_BROKER ALTER_USER_SCRAM_CREDENTIALS
    ALTER_CLIENT_QUOTAS
"""
"""Of the APIs served here those that Kafka's brokers forward (`ApiKeys.forwardable`);
tests/interop/test_definitions.py asks Kafka's own classes."""


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.name)
def test_a_handler_is_typed_by_the_messages_of_its_api(api: ApiKey) -> None:
    module = importlib.import_module(f"oncelog.broker.apis.{HANDLERS[api].module}")
    hints = module.handle.__annotations__
    returned = str(hints["return"])
    for alias in re.findall(r"\bAnswer\b", returned):
        returned = returned.replace(alias, str(module.Answer))
    assert "Any" not in f"{hints['request']} {returned}"
    if api in READ_BYTES:
        assert (hints["request"], "Pending" in returned) == ("Request[memoryview]", True)
    else:
        assert re.match(rf"Request\[(\w+\.)?{api.title}Request( \| None)?\]", hints["request"])
        assert f"{api.title}Response" in returned


def test_kafkas_forwarded_apis_are_the_controllers_alone() -> None:
    alone = {api.name for api, served in HANDLERS.items() if served.is_controller_only}
    assert alone == set(FORWARDED.split())
