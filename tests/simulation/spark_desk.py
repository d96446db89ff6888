"""What an operator sees: which batch may run, where a query may begin, why a stage failed.

Between two queries of the model the shipped decisions are asked about the present marker and ones
near it, and compared with the table of `oncelog.spark.marker`'s docstring, written anew. No cluster
is needed for that, so that every row of the table comes in every run.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from pyspark.sql.types import BinaryType, StringType

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import DataLossError, FailClosedError, UsageError, WriteStageError
from oncelog.spark.marker import (
    ACCEPTABLE,
    BatchIdentity,
    Marker,
    Verdict,
    check_start,
    compare,
    latest,
    opened_query,
    opening,
)
from oncelog.spark.write_stage import (
    STAGE_SETTINGS,
    check_one_attempt,
    failure_of,
    record_columns,
    stage_settings,
    with_columns,
)

__all__ = ["look"]

Complain = Callable[[str, str], None]
_PLACES: Final = (TopicPartition("source", 0), TopicPartition("source", 1))


def look(rng: random.Random, marker: Marker | None, complain: Complain) -> None:
    """Ask once about everything."""
    for what, asked in (
        ("a verdict", _verdict(rng, marker)),
        ("a beginning", _beginning(rng)),
        ("the newest marker", _newest(rng, marker)),
        ("a failure", _failure(rng)),
        ("columns", _columns(rng)),
        ("the attempts of a stage", _attempts(rng)),
    ):
        for text in asked:
            complain(f"{what} is wrong", text)


# --- markers ------------------------------------------------------------------------------


def _verdict(rng: random.Random, marker: Marker | None) -> Iterator[str]:
    last = None if marker is None else marker.batch
    number = 3 if last is None else last.batch_id
    batch = BatchIdentity(
        rng.choice(("another", "query" if last is None else last.query_id)),
        rng.choice((0, max(0, number - 1), number, number, number + 1, number + 1, number + 2)),
        rng.choice(("0" * 32, "0" * 32 if last is None else last.sources_hash)),
    )
    accept = {reason for reason in ACCEPTABLE if rng.random() < 0.2}
    replaces = rng.choice((None, "stranger", None if last is None else last.query_id))
    may_have_expired = rng.random() < 0.3
    wanted: Verdict | str
    if last is None:
        is_first = batch.batch_id == 0 and not may_have_expired
        wanted = Verdict.RUN if is_first or "missing-marker" in accept else "missing-marker"
    elif last.query_id != batch.query_id:
        may_replace = batch.batch_id == 0 and replaces == last.query_id
        wanted = Verdict.RUN if may_replace else "other-query"
    else:
        wanted = _of_same_query(last, batch)
        if isinstance(wanted, str) and wanted in accept:
            wanted = Verdict.RUN
    given: Verdict | str
    try:
        given = compare(
            marker,
            batch,
            accept=accept,
            replaces_query=replaces,
            may_have_expired=may_have_expired,
        )
    except FailClosedError as error:
        given = error.reason
        numbers = [str(batch.batch_id)] if last is None else [str(last.batch_id)]
        if not all(each in str(error) for each in numbers):
            yield f"{error} does not name {numbers}"
    if given != wanted:
        yield f"{batch} after {last} with {accept}, {replaces}: {given} instead of {wanted}"


def _of_same_query(last: BatchIdentity, batch: BatchIdentity) -> Verdict | str:
    if batch.batch_id == last.batch_id + 1:
        return Verdict.RUN
    if batch.batch_id < last.batch_id:
        return "older-batch"
    if batch.batch_id > last.batch_id:
        return "skipped-batches"
    return Verdict.DRAIN if batch.sources_hash == last.sources_hash else "other-sources"


def _beginning(rng: random.Random) -> Iterator[str]:
    ends = {place: rng.randint(0, 2) for place in _PLACES if rng.random() < 0.8}
    begins = {place: rng.randint(0, 2) for place in _PLACES}
    told = begins if rng.random() < 0.8 else None
    is_accepted = rng.random() < 0.2
    differing = [place for place in _PLACES if ends.get(place, begins[place]) != begins[place]]
    is_refused = not is_accepted and (told is None or not ends or bool(differing))
    try:
        check_start(told, ends, ("other-start",) if is_accepted else ())
    except FailClosedError as error:
        text = str(error)
        if not is_refused or error.reason != "other-start":
            yield f"{told} after {ends}: {text}"
        elif told is not None and ends:
            first = differing[0]
            word = "again" if begins[first] < ends[first] else "never"
            numbers = f"offset {begins[first]} of {first}", f"ended at {ends[first]}"
            if word not in text or not all(each in text for each in numbers):
                yield f"{told} after {ends}: {text}"
        return
    if is_refused:
        yield f"{told} after {ends} was accepted"


def _newest(rng: random.Random, marker: Marker | None) -> Iterator[str]:
    batch = BatchIdentity("query", rng.randint(0, 9), "a" * 32)
    others = [
        Marker(rng.randint(1, 50), batch, rng.choice((None, 0, 5_000)))
        for _ in range(rng.randint(0, 3))
    ]
    markers = [*others, *([] if marker is None else [marker])]
    strangers = ["", None, "no marker", '{"oncelog"', '["oncelog"]', opening("new").encode()]
    texts = [*(each.encode() for each in markers), *strangers]
    rng.shuffle(texts)
    found = latest(texts)
    wanted = max((each.sequence for each in markers), default=None)
    if (None if found is None else found.sequence) != wanted:
        yield f"{found} of {texts}"
    for each in markers:
        if Marker.decode(each.encode()) != each or opened_query(each.encode()) is not None:
            yield f"{each} is read as {Marker.decode(each.encode())}"
    if opened_query(opening("new").encode()) != "new":
        yield "an opening does not name its query"
    for text in ('{"oncelog":2}', '{"oncelog":1,"sequence":1}'):
        try:
            yield f"{text} is read as {Marker.decode(text)}"
        except FailClosedError as error:
            if error.reason != "marker-format":
                yield f"{text}: {error.reason}"


# --- the write stage ----------------------------------------------------------------------

_JAVA: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect.\n"
_PYTHON: Final = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'


def _failure(rng: random.Random) -> Iterator[str]:
    number = rng.randint(0, 99)
    text, kind, wanted = rng.choice(
        (
            (f"x\n{_PYTHON}pkg.UsageError: no topic {number}\n", UsageError, f"no topic {number}"),
            (f"pkg.DataLossError: lost {number}", DataLossError, f"lost {number}"),
            (
                f"{_JAVA}: org.apache.spark.SparkException: outer\nCaused by: java.io.IOException:"
                f" inner {number}\n",
                WriteStageError,
                f"java.io.IOException: inner {number}",
            ),
            (
                f"{_JAVA}: org.apache.spark.SparkException: outer\n{_PYTHON}ValueError: bad"
                f" {number}\n\nCaused by: java.io.IOException: inner\n",
                WriteStageError,
                f"ValueError: bad {number}",
            ),
            (f"  \nsomething {number}\nelse", WriteStageError, f"something {number}"),
            ("", WriteStageError, "no reason given"),
            ("RuntimeError: " + "x" * 2_000, WriteStageError, "x" * 700 + "..."),
        )
    )
    found = failure_of(RuntimeError(text))
    said = str(found)
    is_right = said.endswith(wanted) if len(wanted) < 100 else said.endswith("xxx...")
    if type(found) is not kind or not is_right or len(said) > 900:
        yield f"{text[:300]!r} gave {type(found).__name__}: {said[:300]}, expected {wanted[:100]}"


def _columns(rng: random.Random) -> Iterator[str]:
    names = [
        "value",
        *(n for n in ("key", "topic", "partition", "headers", "timestamp") if rng.random() < 0.6),
    ]
    kinds = {name: rng.choice((BinaryType(), StringType())) for name in names}
    chosen: list[str] = []
    fields = [SimpleNamespace(name=name, dataType=kind) for name, kind in kinds.items()]
    frame: Any = SimpleNamespace(
        schema=SimpleNamespace(fields=[*fields, SimpleNamespace(name="more", dataType=None)]),
        columns=[*names, "more"],
        selectExpr=lambda *expressions: chosen.extend(expressions),
    )
    has_topic = "topic" in names
    wanted: dict[str, str] = {
        name: name if kinds[name] == BinaryType() else f"cast({name} as binary)"
        for name in ("value", "key")
        if name in names
    }
    wanted |= {name: name for name in ("topic", "partition") if name in names}
    found = record_columns(frame, None if has_topic else "out")
    plain = {k: v for k, v in found.items() if k not in ("headers", "timestamp_us")}
    has_more = ("headers" in found, "timestamp_us" in found)
    if plain != wanted or has_more != ("headers" in names, "timestamp" in names):
        yield f"{kinds} gave {found}"
    with_columns(frame, found)
    if sorted(chosen) != sorted(f"{value} as {name}" for name, value in found.items()):
        yield f"{found} selects {chosen}"
    yield from _settings()


def _settings() -> Iterator[str]:
    """A stage's settings are set while it runs, and restored."""
    held = dict.fromkeys(STAGE_SETTINGS, "before")
    session = SimpleNamespace(conf=SimpleNamespace(get=held.get, set=held.__setitem__))
    with stage_settings(session):
        if held != STAGE_SETTINGS:
            yield f"a stage runs with {held}"
    if held != dict.fromkeys(STAGE_SETTINGS, "before"):
        yield f"a stage leaves {held}"


def _attempts(rng: random.Random) -> Iterator[str]:
    """Of jobs with several stages each ran once; in the last one no task failed."""
    jobs = {
        job: sorted(rng.sample(range(9), rng.randint(1, 3))) for job in range(rng.randint(1, 2))
    }
    stages = {
        number: SimpleNamespace(
            currentAttemptId=int(rng.random() < 0.1), numFailedTasks=int(rng.random() < 0.2)
        )
        for numbers in jobs.values()
        for number in numbers
    }
    sends = rng.random() < 0.7
    wrong = [
        number
        for numbers in jobs.values()
        for number in numbers
        if stages[number].currentAttemptId
        or (sends and number == max(numbers) and stages[number].numFailedTasks)
    ]
    tracker = SimpleNamespace(
        getJobInfo=lambda job: SimpleNamespace(stageIds=jobs[job], status="SUCCEEDED"),
        getStageInfo=stages.get,
    )
    java = SimpleNamespace(
        statusTracker=lambda: SimpleNamespace(getJobIdsForTag=lambda tag: list(jobs))
    )
    context = SimpleNamespace(statusTracker=lambda: tracker, _jsc=SimpleNamespace(sc=lambda: java))
    with _refused(bool(wrong)) as found:
        check_one_attempt(context, "tag", sends)
    if found:
        yield f"{jobs}, {stages}, sends {sends}: {found}"


@contextmanager
def _refused(is_due: bool) -> Iterator[list[str]]:
    found: list[str] = []
    try:
        yield found
    except WriteStageError as error:
        if not is_due:
            found.append(f"refused: {error}")
        return
    if is_due:
        found.append("not refused")
