"""The handler of each API takes its API's request and returns its API's response, by its types."""

import importlib
import re

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.protocol.api import ApiKey

READ_BYTES = {ApiKey.PRODUCE, ApiKey.FETCH}


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.name)
def test_a_handler_is_typed_by_the_messages_of_its_api(api: ApiKey) -> None:
    module = importlib.import_module(f"oncelog.broker.apis.{HANDLERS[api]}")
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
