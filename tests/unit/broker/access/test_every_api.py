"""Every API and version: who may is served, who may not is told so, and the handler is not asked.

What is expected is the table in `facts`. Produce and Fetch are in `test_records`.
"""

from __future__ import annotations

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.broker.apis.needs import InParts, Nothing
from oncelog.protocol.api import ApiKey
from tests.unit.broker.access.asking import ask
from tests.unit.broker.access.fact import Fact
from tests.unit.broker.access.facts import FACTS

ELSEWHERE = {ApiKey.PRODUCE, ApiKey.FETCH}


def test_every_api_is_in_the_table() -> None:
    free = {api for api, served in HANDLERS.items() if isinstance(served.needs, Nothing)}
    assert free == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {fact.api for fact in FACTS} | ELSEWHERE | free == HANDLERS.keys()


def test_the_column_names_what_the_table_has() -> None:
    for api in HANDLERS.keys() - ELSEWHERE:
        needs = HANDLERS[api].needs
        if isinstance(needs, Nothing):
            continue
        stated = set(map(str, needs.needs)) if isinstance(needs, InParts) else {str(needs.need)}
        seen = {
            " ".join(right.split()[:2])
            for fact in FACTS
            if fact.api is api
            for right in fact.rights.split(", ")
        }
        assert seen - {""} <= stated, api.title


def titled(fact: Fact) -> str:
    return f"{fact.api.title} {fact.rights}"


@pytest.mark.parametrize("fact", FACTS, ids=titled)
async def test_who_has_exactly_the_rights_is_served(fact: Fact) -> None:
    assert fact.versions
    for version in fact.versions:
        answered = await ask(fact.api, version, fact.body, fact.rights)
        assert answered.body is not None, version
        assert answered.errors == {}, version


@pytest.mark.parametrize("fact", FACTS, ids=titled)
async def test_who_has_none_is_told_so_and_nothing_is_done(fact: Fact) -> None:
    for version in fact.versions:
        answered = await ask(fact.api, version, fact.body, "")
        assert answered.errors == fact.nothing, version
        assert (answered.body is not None) is fact.still_asked, version


@pytest.mark.parametrize("fact", [fact for fact in FACTS if fact.without], ids=titled)
async def test_without_one_right_its_part_is_refused_and_the_others_are_served(fact: Fact) -> None:
    for version in fact.versions:
        for missing, errors in fact.without.items():
            others = [each for each in fact.rights.split(", ") if each != missing]
            answered = await ask(fact.api, version, fact.body, ", ".join(others))
            assert answered.errors == errors, (version, missing)
            if errors.keys() != {""}:
                whole = await ask(fact.api, version, fact.body, fact.rights)
                assert shape(answered.response) == shape(whole.response), (version, missing)


def shape(response: object) -> list[tuple[str, int]]:
    """How many parts each list of a response has at the top: refused or served, each is told."""
    names = getattr(response, "__dataclass_fields__", {})
    values = {name: getattr(response, name) for name in names}
    return [(name, len(value)) for name, value in values.items() if isinstance(value, tuple)]
