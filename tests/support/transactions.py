"""Writes the made parts of docs/transactions.md: the tables, and one real transaction.

The tables come from the code (`LEGAL_PREVIOUS`) and from the cells that the scenarios hold the
coordinator to (`tests.scenarios.transaction.cells`); the transaction is one of a broker that is
started for it. Run as ``python -m tests.support.transactions``; a unit test holds the document to
what this makes, its times aside.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence

from click.testing import CliRunner

from oncelog import Admin, EmbeddedBroker, OffsetAndMetadata, Producer, TopicPartition
from oncelog.cli.main import main
from oncelog.client import NewTopic
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionState
from tests.scenarios.transaction.cells import TABLE, WAITS
from tests.support.readers import SOURCES

DOCUMENT = SOURCES.parents[1] / "docs" / "transactions.md"

_MARK = "<!-- made: {} -->\n"
_END = "<!-- end -->\n"
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}|[\d.]+ (?:ms|s) ago|\t\d+$", re.MULTILINE
)

_S = TransactionState
_STATES = (
    _S.EMPTY,
    _S.ONGOING,
    _S.PREPARE_COMMIT,
    _S.PREPARE_ABORT,
    _S.COMPLETE_COMMIT,
    _S.COMPLETE_ABORT,
)
_OUTCOMES = {"NONE": "granted", WAITS: "waits"}


def states_table() -> str:
    """Every state, its number in the log, and where it may be reached from."""
    rows = [
        (f"`{state.label}`", str(state.value), _labels(LEGAL_PREVIOUS[state]))
        for state in TransactionState
    ]
    return _table(("state", "in the log", "reached from"), rows)


def states_diagram() -> str:
    """The same as a diagram."""
    lines = [
        f"    {before.label} --> {after.label}"
        for after in TransactionState
        for before in sorted(LEGAL_PREVIOUS[after], key=lambda state: state.value)
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def requests_table(requests: Sequence[tuple[str, str, str]]) -> str:
    """What each request is answered in each state; `requests` are (title, cell, relation)."""
    rows = []
    for title, request, relation in requests:
        cells = [TABLE[f"{request}: {state.label}, {relation}"] for state in _STATES]
        rows.append((title, *(_OUTCOMES.get(cell, f"`{cell}`") for cell in cells)))
    return _table(("", *(state.label for state in _STATES)), rows)


def end_tables(version: int) -> str:
    """EndTxn under one protocol."""
    relations = {"current": "the current epoch", "last": "the epoch before", "old": "an older one"}
    requests = [
        (f"{end}, {title}", f"TV{version} {end}", relation)
        for end in ("commit", "abort")
        for relation, title in relations.items()
    ]
    return requests_table(requests)


def other_tables() -> str:
    """InitProducerId and AddPartitionsToTxn."""
    return requests_table(
        [
            ("InitProducerId of a producer that starts", "init", "starts"),
            ("InitProducerId with the current epoch (KIP-360)", "init", "current"),
            ("InitProducerId with an older epoch", "init", "old"),
            ("partitions added, current epoch", "TV2 add", "current"),
            ("partitions added, older epoch", "TV2 add", "old"),
            ("verified and absent (KIP-890)", "verify", "current, absent"),
        ]
    )


def life() -> str:
    """A transaction over three partitions with offsets: while it is open, and at its end."""
    few = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    with EmbeddedBroker(config=few) as broker:
        return asyncio.run(_life(broker.bootstrap_servers))


async def _life(servers: str) -> str:
    shown: list[str] = []
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic("orders", 2), NewTopic("sums", 1)])
        async with Producer(servers, transactional_id="adder-1") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            producer.send("orders", b"2 apples", partition=0)
            producer.send("orders", b"1 pear", partition=1)
            await producer.flush()
            shown.append(await _command(servers, "watch", "--count", "1"))
            producer.send("sums", b"3 fruits", partition=0)
            await producer.flush()
            taken = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
            await producer.send_offsets_to_transaction(taken, "adders")
            await producer.commit_transaction()
        while (await admin.describe_transaction("adder-1")).state != "CompleteCommit":  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)
        shown.append(await _command(servers, "show", "adder-1"))
    return "```console\n" + "".join(shown) + "```\n"


async def _command(servers: str, *arguments: str) -> str:
    """A command and what it printed, as in a pipe."""
    environment = {"ONCELOG_BOOTSTRAP_SERVER": servers}

    def call() -> str:
        return CliRunner().invoke(main, ["transactions", *arguments], env=environment).stdout

    return f"$ oncelog transactions {' '.join(arguments)}\n{await asyncio.to_thread(call)}"


PARTS: dict[str, Callable[[], str]] = {
    "life": life,
    "states": states_table,
    "diagram": states_diagram,
    "TV2 ends": lambda: end_tables(2),
    "TV1 ends": lambda: end_tables(1),
    "others": other_tables,
}


def make(text: str) -> str:
    """The document with its made parts made anew."""
    for name, part in PARTS.items():
        mark = _MARK.format(name)
        head, _, rest = text.partition(mark)
        _, _, tail = rest.partition(_END)
        text = f"{head}{mark}\n{part()}\n{_END}{tail}"
    return text


def without_times(text: str) -> str:
    """What does not differ between two runs."""
    return _TIME.sub("T", text)


def _labels(states: Iterable[TransactionState]) -> str:
    return ", ".join(f"`{one.label}`" for one in sorted(states, key=lambda state: state.value))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(make(DOCUMENT.read_text()))
