"""What each user is answered that lacks a right, beside Apache Kafka: codes, names and all else.

For each API, each version that both serve, and each of its needs a user with nothing, with all but
one right, and with all of them asks both brokers the same. `tests.support.denial` has the requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from oncelog.broker.apis import HANDLERS
from oncelog.broker.apis.needs import Nothing
from oncelog.protocol.api import PRIVATE, ApiKey
from tests.support.denial import QUESTIONS, Question, Side, differences, sides

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(240)]

ATTEMPTS_COUNT = 3
"""Apache Kafka may not know yet on all sides what was just made."""
REFUSALS: Final = re.compile("(topic|group|cluster|transactional_id)_authorization_failed")
DELIBERATE: Final[dict[ApiKey, dict[str, str]]] = {
    ApiKey.METADATA: {"/topics/new/": "the topic is made before the answer"},
    ApiKey.DESCRIBE_CONFIGS: {"/configs": "settings without an effect here are left out"},
    ApiKey.CREATE_TOPICS: {
        "/configs": "settings without an effect here are left out",
        "/topic_id": "what is only validated has no id",
    },
    ApiKey.ALTER_CONFIGS: {"/responses/m/": "there are no subscriptions of client metrics"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"/responses/m/": "the same"},
    ApiKey.ELECT_LEADERS: {"": "topics without an election are not listed"},
}
"""By API the paths in an answer at which we differ, and why; a refusal is never excused."""


@pytest.fixture(scope="module")
def both(
    java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    """Oncelog and Apache Kafka."""
    with sides(tmp_path_factory.mktemp("denied")) as found:
        yield found


def test_each_api_that_needs_something_is_asked_for() -> None:
    needy = {api for api, served in HANDLERS.items() if not isinstance(served.needs, Nothing)}
    assert {question.api for question in QUESTIONS} == needy - PRIVATE


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_who_lacks_a_right_is_answered_as_by_apache_kafka(
    both: tuple[Side, Side], question: Question
) -> None:
    ours, kafka = both
    served = kafka.versions()[question.api]
    asked_count, differing = 0, []
    for version in question.versions:
        if version in served:
            for rights in question.rights:
                asked_count += 1
                if found := differences_of(ours, kafka, question, version, rights):
                    differing.append((version, sorted(rights), found))
    assert asked_count
    assert differing == []


def differences_of(
    ours: Side, kafka: Side, question: Question, version: int, rights: frozenset[str]
) -> list[Any]:
    """Where the answers differ each time: (path, Kafka's value, ours)."""
    found: list[Any] = []
    for _ in range(ATTEMPTS_COUNT):
        ours.restore()
        kafka.restore()
        theirs = kafka.ask(question, version, rights)
        every = differences(theirs, ours.ask(question, version, rights))
        found = [each for each in every if not is_deliberate(question.api, *each)]
        if not found:
            break
    return found


def is_deliberate(api: ApiKey, path: str, *values: Any) -> bool:
    is_refusal = any(REFUSALS.fullmatch(str(value)) for value in values)
    return not is_refusal and any(part in path for part in DELIBERATE.get(api, ()))
