"""The pytest plugin: a broker as a fixture, and its log in the report of a failed test.

pytest loads it by the entry point `oncelog`. The rest of the package is imported with the first
fixture that is used. docs/testing.md is the guide.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from oncelog.testing.broker import ControlledBroker
    from oncelog.testing.cluster import ControlledCluster
    from oncelog.testing.report import BrokerLog, LogEnds

__all__ = [
    "oncelog",
    "oncelog_broker",
    "oncelog_cluster",
    "oncelog_own_broker",
    "oncelog_secure_broker",
    "oncelog_topic",
]

MARKER: Final = "oncelog"
TOPIC_NAME_LENGTH_MAX: Final = 100
OWN_BROKER: Final = "oncelog_own_broker"
FORMER_OWN_BROKER: Final = "oncelog"
OWN_BROKERS: Final = frozenset({OWN_BROKER, FORMER_OWN_BROKER})
CLUSTER: Final = "oncelog_cluster"
WITH_CONFIG: Final = OWN_BROKERS | {CLUSTER}
SECURE: Final = "oncelog_secure_broker"
FIXTURES: Final = WITH_CONFIG | {"oncelog_broker", SECURE, "oncelog_topic"}


class _Brokers:
    """The brokers that fixtures have started in this process, and their log."""

    def __init__(self) -> None:
        self.running: list[ControlledBroker] = []
        self.clusters: list[ControlledCluster] = []
        self.ends: dict[ControlledBroker, LogEnds] = {}
        """Where the logs of a broker ended that ran before the present test."""
        self.log: BrokerLog | None = None
        self.topic_numbers = itertools.count(1)

    def start(
        self, config: dict[str, object], *, secure: bool = False
    ) -> Iterator[ControlledBroker]:
        from oncelog.testing.broker import ControlledBroker

        with self.listening(), ControlledBroker(config=config, secure=secure) as broker:
            self.running.append(broker)
            try:
                yield broker
            finally:
                self.running.remove(broker)
                self.ends.pop(broker, None)

    def start_cluster(
        self, brokers: int, config: dict[str, object], *, secure: bool
    ) -> Iterator[ControlledCluster]:
        from oncelog.testing.cluster import ControlledCluster

        with (
            self.listening(),
            ControlledCluster(brokers, config=config, secure=secure) as cluster,
        ):
            self.clusters.append(cluster)
            try:
                yield cluster
            finally:
                self.clusters.remove(cluster)

    def listening(self) -> contextlib.AbstractContextManager[None]:
        from oncelog.testing.report import BrokerLog

        if self.log is None:
            self.log = BrokerLog()
        return self.log.listening()

    def note_ends(self) -> None:
        """Remember where logs end: a test begins."""
        from oncelog.testing.report import LogEnds

        self.ends.clear()
        for broker in self.running:
            # A broker that has failed has said so already; its report then leaves nothing out.
            with contextlib.suppress(RuntimeError):
                self.ends[broker] = broker.call(LogEnds.of)


_BROKERS: Final = pytest.StashKey[_Brokers]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for all brokers that the fixtures start."""
    parser.addini(
        "oncelog_config", "settings of the brokers of fixtures, KEY=VALUE", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and create the session's collection of brokers."""
    config.stash[_BROKERS] = _Brokers()
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config={{}}, secure=False, brokers=3, partitions=1, topic_config={{}}): "
        f"settings of the broker of the fixture `{OWN_BROKER}`, or of the brokers of `{CLUSTER}` "
        "and how many they are, and of the topic of `oncelog_topic`",
    )


@pytest.fixture(scope="session")
def oncelog_broker(pytestconfig: pytest.Config) -> Iterator[ControlledBroker]:
    """A broker for all tests of this process: under pytest-xdist each worker has its own.

    Faults that have not occurred are removed after each test.
    """
    yield from pytestconfig.stash[_BROKERS].start(_config_of_session(pytestconfig))


@pytest.fixture(scope="session")
def oncelog_secure_broker(pytestconfig: pytest.Config) -> Iterator[ControlledBroker]:
    """As `oncelog_broker`, with TLS, and users that log in; it needs the extra `secure`."""
    config = _config_of_session(pytestconfig)
    yield from pytestconfig.stash[_BROKERS].start(config, secure=True)


@pytest.fixture
def oncelog_own_broker(request: pytest.FixtureRequest) -> Iterator[ControlledBroker]:
    """A broker for this test alone, with the configs of its marker."""
    wanted = _wanted(request.node)
    config = _config_of_session(request.config) | wanted.config
    yield from request.config.stash[_BROKERS].start(config, secure=wanted.secure)


@pytest.fixture
def oncelog(
    request: pytest.FixtureRequest, oncelog_own_broker: ControlledBroker
) -> ControlledBroker:
    """The former name of `oncelog_own_broker`: in a test it hides the module `oncelog`."""
    request.node.warn(
        DeprecationWarning(
            f"the fixture `{FORMER_OWN_BROKER}` is now `{OWN_BROKER}`: under its former name it "
            "hides the module `oncelog`"
        )
    )
    return oncelog_own_broker


@pytest.fixture
def oncelog_cluster(request: pytest.FixtureRequest) -> Iterator[ControlledCluster]:
    """Three brokers for this test alone, which it may kill, pause and cut from each other.

    The marker says how many there are, and their configs.
    """
    wanted = _wanted(request.node)
    config = _config_of_session(request.config) | wanted.config
    brokers = request.config.stash[_BROKERS]
    yield from brokers.start_cluster(wanted.brokers, config, secure=wanted.secure)


@pytest.fixture
def oncelog_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that no other test uses, created as the marker says.

    It is on the cluster of the fixture `oncelog_cluster`, or on the broker of `oncelog_own_broker`,
    if the test uses one of them. Else it is on `oncelog_secure_broker`, if the test uses that, or
    on `oncelog_broker`, and deleted after the test with those whose names are made from its own:
    ``f"{oncelog_topic}-target"``.
    """
    used = set(request.fixturenames)
    is_own = bool(WITH_CONFIG & used)
    wanted = _wanted(request.node)
    number = next(request.config.stash[_BROKERS].topic_numbers)
    legal = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:TOPIC_NAME_LENGTH_MAX]
    name = f"{legal}-{number}"
    own = CLUSTER if CLUSTER in used else OWN_BROKER
    shared = SECURE if SECURE in used else "oncelog_broker"
    broker: ControlledBroker = request.getfixturevalue(own if is_own else shared)
    broker.create_topic(name, wanted.partitions, wanted.topic_config)
    yield name
    if not is_own:
        _make_well(broker)
        _delete(broker, name)


def _make_well(broker: ControlledBroker) -> None:
    """Remove what a test left of its faults, and restart the broker if it is down."""
    broker.faults.clear()
    broker.faults.restart()


def _delete(broker: ControlledBroker, name: str) -> None:
    """Delete a test's topic and those named after it; the test may have deleted some itself."""
    named_after = re.compile(re.escape(name) + r"($|[._-])")
    for each in broker.call(lambda inside: list(filter(named_after.match, inside.image.topics))):
        broker.delete_topic(each)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check the test's markers and clear the log before its fixtures run."""
    used = FIXTURES & set(getattr(item, "fixturenames", ()))
    if used and not WITH_CONFIG & used:
        wanted = _wanted(item)
        if wanted.config or wanted.secure:
            key = "config=" if wanted.config else "secure="
            raise pytest.UsageError(
                f"{item.nodeid}: a marker with {key} needs a broker of its own: use the "
                f"fixture `{OWN_BROKER}`, or `{CLUSTER}`"
            )
    brokers = item.config.stash[_BROKERS]
    if brokers.log is not None:
        brokers.log.clear()
    if used and brokers.running:
        brokers.note_ends()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Restart the session's broker if it is down, and remove its faults, for the next test."""
    for broker in item.config.stash[_BROKERS].running:
        _make_well(broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add logs, topics and transactions of a failed test's brokers to its report."""
    report = yield
    _tell(item, report)
    return report


def _tell(item: pytest.Item, report: pytest.TestReport) -> None:
    if not report.failed or not FIXTURES & set(getattr(item, "fixturenames", ())):
        return
    brokers = item.config.stash[_BROKERS]
    for broker in brokers.running:
        report.sections += _sections(broker, brokers.ends.get(broker))
    for cluster in brokers.clusters:
        # The report of a failed test must not fail itself.
        with contextlib.suppress(RuntimeError):
            report.sections.append(("oncelog: the cluster", cluster.report()))
    if brokers.log is not None and brokers.log.text():
        report.sections.append(("oncelog: the broker's log", brokers.log.text()))


def _sections(broker: ControlledBroker, before: LogEnds | None) -> list[tuple[str, str]]:
    from oncelog.testing.report import LogEnds, topics_text, transactions_text

    ends = before or LogEnds()
    address = broker.bootstrap_servers
    try:
        topics, transactions = broker.call(
            lambda inside: (topics_text(inside, ends), transactions_text(inside, ends))
        )
    except Exception as error:  # noqa: BLE001 - the report of a failed test must not fail itself
        return [(f"oncelog: the broker {address}", f"cannot be looked at: {error}")]
    found = [(f"oncelog: topics of {address}", topics)]
    if transactions:
        found.append((f"oncelog: transactions of {address}", transactions))
    return found


def _config_of_session(config: pytest.Config) -> dict[str, object]:
    lines: list[str] = config.getini("oncelog_config")
    settings: dict[str, object] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"oncelog_config: expected KEY=VALUE, not {line!r}")
        settings[key.strip()] = value.strip()
    return settings


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options from a test's markers; the closest marker wins."""

    config: dict[str, object]
    topic_config: dict[str, object]
    partitions: int
    brokers: int
    secure: bool


def _wanted(item: pytest.Item) -> _Wanted:
    said: dict[str, object] = {}
    for marker in item.iter_markers(MARKER):
        if marker.args:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker {MARKER} takes its settings by name, not "
                f"{', '.join(map(str, marker.args))}"
            )
        said = {**marker.kwargs, **said}
    known = {"brokers", "config", "partitions", "secure", "topic_config"}
    unknown = sorted(said.keys() - known)
    if unknown:
        raise pytest.UsageError(
            f"{item.nodeid}: the marker {MARKER} knows brokers, config, partitions, secure and "
            f"topic_config, not {', '.join(unknown)}"
        )
    config, topic_config = said.get("config", {}), said.get("topic_config", {})
    partitions, brokers = said.get("partitions", 1), said.get("brokers", 3)
    if not (isinstance(config, dict) and isinstance(topic_config, dict)):
        raise pytest.UsageError(f"{item.nodeid}: the marker {MARKER} takes configs as dictionaries")
    if not (isinstance(partitions, int) and isinstance(brokers, int)):
        raise pytest.UsageError(
            f"{item.nodeid}: the marker {MARKER} takes numbers of partitions and of brokers"
        )
    return _Wanted(config, topic_config, partitions, brokers, bool(said.get("secure")))
