"""Renders a run as one HTML page, without a server or external files.

Time goes downwards, one lane for each broker, client and partition. Python computes all positions
and marks important events (`timeline_scale`, `timeline_events`, `timeline_spans`); the script in
`page/` draws the visible part and knows no Kafka. All data of a run is in the page as JSON, or
escaped.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from importlib import resources
from string import Template
from typing import Any, Protocol

from oncelog.core.ids import INTERNAL_TOPICS, TopicPartition
from oncelog.simulation import history as h
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import Event, History, Value
from oncelog.simulation.timeline_events import (
    details,
    kind_of,
    places_of,
    transaction_of,
    values_of,
)
from oncelog.simulation.timeline_scale import TimeScale
from oncelog.simulation.timeline_spans import bands, spans

__all__ = ["TimelineFinding", "write_timeline"]

_NUMBERS = re.compile(r"(\d+)")
_FAULT_LANE = "faults"
_VALUES_SHOWN_MAX = 8


class TimelineFinding(Protocol):
    """A finding of a checker. `allowed` is "" or why the run's configuration did not promise it."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def at_s(self) -> float: ...  # noqa: D102
    @property
    def who(self) -> str: ...  # noqa: D102
    @property
    def topic_partition(self) -> TopicPartition | None: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def values(self) -> Sequence[Value]: ...  # noqa: D102
    @property
    def allowed(self) -> str: ...  # noqa: D102


def write_timeline(
    history: History,
    final: FinalState | None,
    anomalies: Sequence[TimelineFinding],
    title: str,
    command: str,
) -> str:
    """Return the page's text. `title` identifies the run (its seed), `command` repeats it."""
    page = _Page(history, final)
    data = page.data(anomalies)
    return Template(_part("timeline.html")).substitute(
        title=escape(title),
        command=escape(command),
        summary=_summary(page),
        findings=_findings(anomalies, data["findings"]),
        style=_part("timeline.css"),
        script=_part("timeline.js"),
        # A script element ends at "</", whatever its type.
        data=json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
    )


def _part(name: str) -> str:
    return resources.files("oncelog.simulation").joinpath("page", name).read_text("utf-8")


class _Page:
    """The lanes, marks and spans of one history."""

    def __init__(self, history: History, final: FinalState | None) -> None:
        self.final = final
        self.events = [e for e in history.events if not isinstance(e, h.Watermarks)]
        self.end_s = max((e.at_s for e in history.events), default=0.0)
        self.brokers = _in_order(
            {e.who for e in self.events if isinstance(e, h.BrokerStarted | h.BrokerDied)}
        )
        known = {"", *self.brokers}
        self.clients = _in_order({e.who for e in self.events} - known)
        self.partitions = self._find_partitions()
        names = [_FAULT_LANE, *self.brokers, *self.clients, *map(str, self.partitions)]
        self.lanes = {name: index for index, name in enumerate(names)}
        self.marks = [self._lanes_of(event) for event in self.events]
        moments = ((e.at_s, m) for e, m in zip(self.events, self.marks, strict=True))
        self.scale = TimeScale(moments, self.end_s)
        ends = {} if final is None else final.partitions
        self._logged = {
            partition: {r.offset: r.value for batch in end.batches for r in batch.records}
            for partition, end in ends.items()
        }
        self._shown = {
            (partition, r.offset): r.value for partition, end in ends.items() for r in end.committed
        }

    def _find_partitions(self) -> list[TopicPartition]:
        found = {
            partition
            for event in self.events
            if (partition := getattr(event, "topic_partition", None)) is not None
            # A record has no partition until the producer has chosen it.
            and partition.partition >= 0
        }
        if self.final is not None:
            found |= self.final.partitions.keys()
        return sorted(found, key=lambda p: (p.topic in INTERNAL_TOPICS, p))

    def _lanes_of(self, event: Event) -> list[int]:
        where = _FAULT_LANE if isinstance(event, h.Fault) or not event.who else event.who
        lanes = [self.lanes[where]]
        if kind_of(event).at_partition is not None:
            lanes.append(self.lanes[str(getattr(event, "topic_partition"))])  # noqa: B009
        return lanes

    def data(self, anomalies: Sequence[TimelineFinding]) -> dict[str, Any]:
        """Return the data that the script needs."""
        kinds = list(dict.fromkeys(type(event) for event in self.events))
        keys: dict[str, int] = {}
        index = _Index(self.events)
        return {
            "lanes": [self._lane(name) for name in self.lanes],
            "kinds": [self._kind(kind) for kind in kinds],
            "events": [self._mark(position, kinds, keys) for position in range(len(self.events))],
            "spans": self._spans(keys),
            "bands": self._bands(),
            "ticks": [[round(y, 1), label] for y, label in self.scale.ticks()],
            "pauses": [[round(a, 1), round(b, 1), s] for a, b, s in self.scale.pauses],
            "height": round(self.scale.height),
            "findings": [self._finding(finding, index) for finding in anomalies],
        }

    def _lane(self, name: str) -> dict[str, str]:
        if name == _FAULT_LANE:
            return {"name": name, "kind": "fault", "note": ""}
        if name in self.brokers:
            starts = sum(isinstance(e, h.BrokerStarted) and e.who == name for e in self.events)
            return {"name": name, "kind": "broker", "note": f"{starts} starts"}
        if name in self.clients:
            return {"name": name, "kind": "client", "note": self._counts_of(name)}
        return {"name": name, "kind": "partition", "note": self._end_of(name)}

    def _counts_of(self, client: str) -> str:
        own = Counter(type(e) for e in self.events if e.who == client)
        counts = {"sent": own[h.Sent], "acked": own[h.Acked], "polls": own[h.Polled]}
        return " · ".join(f"{n} {what}" for what, n in counts.items() if n)

    def _end_of(self, name: str) -> str:
        if self.final is None:
            return ""
        for partition, end in self.final.partitions.items():
            if str(partition) == name:
                return f"HW {end.high_watermark} · LSO {end.last_stable_offset}"
        return ""

    @staticmethod
    def _kind(kind: type[Event]) -> dict[str, object]:
        names = [field.name for field in fields(kind) if field.name not in ("at_s", "who")]
        return {"name": kind.__name__, "fields": names}

    def _mark(self, position: int, kinds: list[type[Event]], keys: dict[str, int]) -> list[Any]:
        """One event: time, height, kind, lanes, labels, shape, tone, fields, keys, fate."""
        event, lanes = self.events[position], self.marks[position]
        kind = kind_of(event)
        labels = [kind.label(event)]
        if kind.at_partition is not None:
            labels.append(kind.at_partition(event))
        tone = kind.tone
        if isinstance(event, h.TransactionEnded):
            tone = "commit" if event.commit else "abort"
        own = [keys.setdefault(_value_key(value), len(keys)) for value in values_of(event)]
        number = transaction_of(event)
        if number >= 0:
            own.append(keys.setdefault(_transaction_key(event.who, number), len(keys)))
        return [
            round(event.at_s, 6),
            round(self.scale.ys[position], 1),
            kinds.index(type(event)),
            lanes,
            labels,
            kind.shape,
            tone,
            details(event),
            own,
            self._fate(event),
        ]

    def _fate(self, event: Event) -> str:
        """Return in words where an acknowledged record is at the end of the run."""
        if self.final is None or not isinstance(event, h.Acked) or event.offset < 0:
            return ""
        logged = self._logged.get(event.topic_partition)
        if logged is None:
            return "at the end the partition could not be read"
        place = (event.topic_partition, event.offset)
        if self._shown.get(place) == event.value:
            return "at the end read_committed shows it"
        if event.offset not in logged:
            return "at the end it is not in the log"
        if logged[event.offset] == event.value:
            return "at the end it is in the log and read_committed does not show it"
        return "at the end another record stands at its offset"

    def _spans(self, keys: Mapping[str, int]) -> list[list[Any]]:
        return [
            [
                self.lanes[span.who],
                span.slot,
                round(self.scale.ys[span.first], 1),
                round(self.scale.ys[span.last], 1),
                span.tone,
                span.label,
                keys.get(_transaction_key(span.who, span.transaction), -1),
            ]
            for span in spans(self.events)
            if span.who in self.lanes
        ]

    def _bands(self) -> list[list[Any]]:
        faults = [event for event in self.events if isinstance(event, h.Fault)]
        return [
            [
                round(self.scale.top(band.start_s), 1),
                round(self.scale.y(min(band.end_s, self.end_s)), 1),
                band.label,
                [self.lanes[name] for name in band.lanes],
                f"{band.start_s:.3f} s"
                + (f" to {band.end_s:.3f} s" if band.end_s > band.start_s else ""),
            ]
            for band in bands(faults, [*self.brokers, *self.clients], map(str, self.partitions))
        ]

    def _finding(self, finding: TimelineFinding, index: _Index) -> dict[str, Any]:
        matters = index.matters(finding)
        near = index.nearest(finding)
        y = self.scale.y(finding.at_s)
        if near is not None and self.events[near].at_s == finding.at_s:
            y = self.scale.ys[near]
        return {"y": round(y, 1), "at": near, "events": sorted(matters)}


class _Index:
    """Finds the events of a record, of an offset in a log, or of a transaction."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._by_value: defaultdict[str, list[int]] = defaultdict(list)
        self._by_place: defaultdict[str, list[int]] = defaultdict(list)
        self._by_transaction: defaultdict[str, list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            for value in values_of(event):
                self._by_value[_value_key(value)].append(position)
                if value.transaction >= 0 and value.client == event.who:
                    key = _transaction_key(value.client, value.transaction)
                    self._by_transaction[key].append(position)
            for partition, offset in places_of(event):
                self._by_place[f"{partition}@{offset}"].append(position)
            if transaction_of(event) >= 0:
                key = _transaction_key(event.who, transaction_of(event))
                self._by_transaction[key].append(position)

    def matters(self, finding: TimelineFinding) -> set[int]:
        """Return the events of a finding's records and of their transactions."""
        found = set(self._records(finding))
        for value in finding.values:
            found.update(self._by_place.get(value.source, ()))
            if value.transaction >= 0:
                key = _transaction_key(value.client, value.transaction)
                found.update(self._by_transaction.get(key, ()))
        near = self.nearest(finding)
        if near is not None:
            found.add(near)
        return found

    def nearest(self, finding: TimelineFinding) -> int | None:
        """Return the event of a finding: the nearest in time.

        It is one of the parties that the finding names, or about its records or place, or any.
        """
        own = [p for p, event in enumerate(self._events) if event.who == finding.who != ""]
        candidates = own or self._records(finding) or range(len(self._events))
        return min(
            candidates, key=lambda p: (abs(self._events[p].at_s - finding.at_s), -p), default=None
        )

    def _records(self, finding: TimelineFinding) -> list[int]:
        """Return the events of a finding's records and offset."""
        found = [p for value in finding.values for p in self._by_value.get(_value_key(value), ())]
        if finding.topic_partition is not None and finding.offset >= 0:
            place = f"{finding.topic_partition}@{finding.offset}"
            found += self._by_place.get(place, ())
        return found


def _value_key(value: Value) -> str:
    return f"{value.client}/{value.number}"


def _transaction_key(client: str, transaction: int) -> str:
    return f"{client}#T{transaction}"


def _in_order(names: Iterable[str]) -> list[str]:
    """Sort names by their numbers: c2 before c10."""
    return sorted(names, key=lambda name: [_numbered(part) for part in _NUMBERS.split(name)])


def _numbered(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdecimal() else (0, part)


def _summary(page: _Page) -> str:
    """Return the run's summary, as a list of terms."""
    counts = Counter(type(event) for event in page.events)
    began, ended = (
        counts[h.TransactionBegan],
        Counter(e.commit for e in page.events if isinstance(e, h.TransactionEnded)),
    )
    faults = Counter(e.kind for e in page.events if isinstance(e, h.Fault))
    items = [
        ("simulated", f"{page.end_s:.3f} s"),
        ("clients", f"{len(page.clients)}"),
        ("partitions", f"{len(page.partitions)}"),
        ("events", f"{len(page.events):,}"),
        ("records", f"{counts[h.Sent]:,} sent, {counts[h.Acked]:,} acknowledged"),
        (
            "transactions",
            f"{began:,} begun, {ended[True]:,} committed, {ended[False]:,} aborted, "
            f"{counts[h.TransactionUnknown]:,} unknown",
        ),
        ("broker deaths", f"{counts[h.BrokerDied]:,}"),
        ("faults", ", ".join(f"{kind} × {n}" for kind, n in sorted(faults.items())) or "none"),
    ]
    unread = {} if page.final is None else page.final.unread
    if unread:
        text = ", ".join(f"{partition}: {why}" for partition, why in sorted(unread.items()))
        items.append(("not read at the end", text))
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in items)


def _findings(anomalies: Sequence[TimelineFinding], drawn: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of the table; findings that break a promise come first."""
    order = sorted(range(len(anomalies)), key=lambda i: (bool(anomalies[i].allowed), i))
    return "".join(_finding_row(i, anomalies[i], len(drawn[i]["events"])) for i in order)


def _finding_row(index: int, finding: TimelineFinding, event_count: int) -> str:
    where = "" if finding.topic_partition is None else str(finding.topic_partition)
    if where and finding.offset >= 0:
        where += f"@{finding.offset}"
    values = ", ".join(f"{v.client}#{v.number}" for v in finding.values[:_VALUES_SHOWN_MAX])
    if len(finding.values) > _VALUES_SHOWN_MAX:
        values += f" … {len(finding.values)} in all"
    verdict = f"allowed: {finding.allowed}" if finding.allowed else "not allowed"
    style = "allowed" if finding.allowed else "refused"
    cells = "".join(
        f"<td>{escape(text)}</td>" for text in (finding.detail, finding.who, where, values)
    )
    return (
        f'<tr class="{style}" data-finding="{index}"><td><a href="#finding-{index}">'
        f"{finding.at_s:.3f} s</a></td><th scope=row>{escape(finding.kind)}</th>{cells}"
        f"<td>{event_count}</td><td>{escape(verdict)}</td></tr>"
    )
