"""Each mechanism and protocol with right and wrong credentials: how each stock client is told.

`tests.support.logins` has the cases and what each client has to say of them, at Oncelog and at
Apache Kafka. One broker of each has a listener for every way in, and a client runs all cases at
once. After Apache's SaslClientsWithInvalidCredentialsTest and SslTransportLayerTest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from tests.support.logins import (
    CASES,
    PYTHON_CLIENTS,
    Doors,
    Papers,
    kafka_doors,
    oncelog_doors,
    outcomes_of,
)
from tests.support.logins.java import java_outcomes
from tests.support.logins.words import SAME_ON_BOTH, fits, normal
from tests.support.peer import PeerUnavailable, client_jars, jars

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

JAVA: Final[dict[str, Callable[[], str]]] = {
    "3.9.2": partial(client_jars, "3.9.2"),
    "4.3.1": partial(client_jars, "4.3.1"),
    "4.4.0": jars,
}
BROKERS: Final = {"oncelog": oncelog_doors, "kafka": kafka_doors}
LITERAL: Final = ("confluent", "aiokafka", *JAVA)
"""kafka-python does not always read the last answer before the end of the connection."""


class Said:
    """What clients said at the brokers; they are started and asked when a test needs it."""

    def __init__(self, doors: Callable[[str], Doors]) -> None:
        self._doors = doors
        self._known: dict[tuple[str, str], dict[str, str]] = {}
        self._missing: dict[tuple[str, str], str] = {}
        """Why there is no such client or broker: it is looked for once."""

    def of(self, broker: str, client: str) -> dict[str, str]:
        """By case a client's words; a skip where the client or the broker cannot be had."""
        key = broker, client
        if key not in self._known and key not in self._missing:
            try:
                self._learn(broker, client)
            except PeerUnavailable as reason:
                self._missing[key] = str(reason)
        if key in self._missing:
            pytest.skip(f"Apache Kafka's jars cannot be had: {self._missing[key]}")
        return self._known[key]

    def _learn(self, broker: str, client: str) -> None:
        doors = self._doors(broker)
        together = [client] if client in JAVA else PYTHON_CLIENTS
        with ThreadPoolExecutor() as threads:
            found = threads.map(lambda each: self._asked(each, doors), together)
            for each, said in zip(together, found, strict=True):
                self._known[broker, each] = said

    def _asked(self, client: str, doors: Doors) -> dict[str, str]:
        def ask(names: list[str]) -> dict[str, str]:
            if client in JAVA:
                return java_outcomes(JAVA[client](), doors, names)
            return outcomes_of(client, doors, names)

        said = ask(list(CASES))
        # Where all of them at once were too much for the machine, fewer are asked again.
        late = [name for name in CASES if not fits(client, name, said[name])]
        return said | (ask(late) if late else {})


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    folder = tmp_path_factory.mktemp("logins")
    papers = Papers(folder / "papers")
    started: dict[str, Doors] = {}
    with ExitStack() as stack:

        def doors(broker: str) -> Doors:
            if broker not in started:
                started[broker] = stack.enter_context(BROKERS[broker](folder, papers))
            return started[broker]

        yield Said(doors)


def check(said: Said, broker: str, client: str, case: str) -> None:
    words = said.of(broker, client)[case]
    assert fits(client, case, words), words


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_at_oncelog_says_how_it_ends(said: Said, client: str, case: str) -> None:
    check(said, "oncelog", client, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", JAVA)
def test_javas_client_at_oncelog_says_how_it_ends(said: Said, client: str, case: str) -> None:
    check(said, "oncelog", client, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", [*PYTHON_CLIENTS, *JAVA])
def test_each_client_at_apache_kafka_says_the_same(said: Said, client: str, case: str) -> None:
    check(said, "kafka", client, case)
    if client in LITERAL and case in SAME_ON_BOTH:
        ours, theirs = (normal(said.of(broker, client)[case]) for broker in BROKERS)
        assert ours == theirs
