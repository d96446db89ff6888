"""The stream frameworks that run against Oncelog unchanged: what is run, and what was seen to pass.

The interop tests record each that passed, with its versions, in the table of docs/compatibility.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.evidence import ROOT

DOCUMENT = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- made by tests.support.frameworks -->\n", "<!-- made until here -->\n"
NOT_PASSED = "did not pass"


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework, and what a test has it do."""

    title: str
    what: str
    packages: tuple[str, ...] = ()
    """What pip installs for it; nothing for one whose jars Maven fetches."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A framework that passed: when, and with which versions."""

    day: str
    versions: str


FRAMEWORKS = {
    "quix_streams": Framework(
        "Quix Streams",
        'a topic to a topic under `processing_guarantee="exactly-once"`',
        ("quixstreams",),
    ),
    "fast_stream": Framework(
        "FastStream", "a subscriber that publishes", ("faststream[confluent]",)
    ),
    "bytewax_flow": Framework(
        "Bytewax", "a dataflow from a topic to a topic", ("bytewax", "confluent-kafka<3")
    ),
    "kombu_queue": Framework(
        "Kombu", "a queue of its own, read and acknowledged", ("kombu[confluentkafka]",)
    ),
    "celery_worker": Framework(
        "Celery on Kombu",
        "tasks taken by a worker, acknowledged late",
        ("celery", "kombu[confluentkafka]"),
    ),
    "arroyo_processor": Framework(
        "arroyo", "a stream processor that produces, then commits offsets", ("sentry-arroyo",)
    ),
    "kafka_streams": Framework(
        "Kafka Streams",
        "counts per key under `exactly_once_v2`, with a repartition topic and a state store; the "
        "application is killed twice and the broker once, and every count is right",
    ),
    "kafka_connect": Framework(
        "Kafka Connect",
        "a distributed worker with `exactly.once.source.support`, a file to a topic to a file; the "
        "worker is killed, and each line is in the topic once",
    ),
}
"""Name of the test's script or program -> what it is."""


def forget(name: str) -> None:
    """Whatever was seen of it before does not count any longer: it is run anew."""
    _write({other: ran for other, ran in seen().items() if other != name})


def record(name: str, versions: list[str]) -> None:
    """It passed with these versions."""
    day = datetime.now(UTC).date().isoformat()
    _write(seen() | {name: Ran(day, ", ".join(version.replace("==", " ") for version in versions))})


def seen() -> dict[str, Ran]:
    """What passed, as the document says."""
    made = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    lines = (line.strip("| ").split(" | ") for line in made.splitlines())
    ran = {cells[0]: Ran(cells[2], cells[1]) for cells in lines if len(cells) == 4}
    names = {framework.title: name for name, framework in FRAMEWORKS.items()}
    return {
        names[title]: one
        for title, one in ran.items()
        if title in names and one.versions != NOT_PASSED
    }


def _write(ran: Mapping[str, Ran]) -> None:
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), ran))


def with_table(document: str, ran: Mapping[str, Ran]) -> str:
    """The document with its table made anew."""
    before, _, rest = document.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"no {BEGIN.strip()} ... {END.strip()} in {DOCUMENT.name}")
    return before + BEGIN + table(ran) + END + after


def table(ran: Mapping[str, Ran]) -> str:
    """Markdown: a line for each framework, those that did not pass included."""
    lines = ["", "| | run with | on | what is run |", "|---|---|---|---|"]
    for name, framework in FRAMEWORKS.items():
        one = ran.get(name, Ran("-", NOT_PASSED))
        lines.append(f"| {framework.title} | {one.versions} | {one.day} | {framework.what} |")
    return "\n".join(lines) + "\n\n"


def versions_of_jars(class_path: str, *names: str) -> list[str]:
    """``name==version`` of these jars in a folder that Maven filled."""
    folder = Path(class_path.removesuffix("/*"))
    found = []
    for name in names:
        (jar,) = [
            each for each in folder.glob(f"{name}-*.jar") if _version(each, name)[0].isdigit()
        ]
        found.append(f"{name}=={_version(jar, name)}")
    return found


def _version(jar: Path, name: str) -> str:
    return jar.stem.removeprefix(f"{name}-")
