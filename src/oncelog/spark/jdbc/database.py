"""Connects to a database and classifies its errors. Only this module imports the driver.

A password is never part of a repr, a message or a plan.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from oncelog.client.errors import ConnectionLostError
from oncelog.runtime.installation import how_to_install
from oncelog.spark.errors import UsageError

if TYPE_CHECKING:
    import psycopg

__all__ = ["Database", "parse_name", "parse_url", "quoted", "translated"]

CONNECT_TIMEOUT_S: Final = 10
_DEFAULTS: Final = {
    "connect_timeout": str(CONNECT_TIMEOUT_S),
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "application_name": "oncelog",
}
_JDBC_NAMES: Final = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
}
"""Parameters that the JDBC driver spells in another way than libpq."""

_PART: Final = r'("(?:[^"]|"")+"|[^".\s;]+)'
_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})?")


@dataclass(frozen=True, slots=True)
class Database:
    """libpq's connection parameters. Picklable: tasks carry it to the executors."""

    parameters: dict[str, str]
    password: str | None = field(default=None, repr=False)

    def connect(self) -> "psycopg.Connection[Any]":
        """A connection in autocommit mode.

        Raises `ConnectionLostError` when the database cannot be reached, or refuses us.
        """
        with translated():
            connection: psycopg.Connection[Any] = _driver().connect(
                **{**_DEFAULTS, **self.parameters},
                password=self.password,
                autocommit=True,
                prepare_threshold=None,  # a pooler may change the server's session
            )
        return connection


def parse_url(url: str, user: str | None, password: str | None) -> Database:
    """Read ``jdbc:postgresql://host:port/database?...``, or the same without ``jdbc:``.

    `user` and `password` win over those in the URL.
    """
    scheme, separator, rest = url.removeprefix("jdbc:").partition("://")
    if scheme not in ("postgresql", "postgres") or not separator:
        raise UsageError("url must look like jdbc:postgresql://host:5432/database")
    parts = urlsplit(f"{scheme}://{rest}")
    query = urlencode(
        [_of_jdbc(name, value) for name, value in parse_qsl(parts.query)], quote_via=quote
    )
    uri = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
    psycopg = _driver()
    try:
        parameters = psycopg.conninfo.conninfo_to_dict(uri)
    except psycopg.ProgrammingError as error:
        # libpq names the parameter that it does not know, never a value.
        raise UsageError(f"url: {str(error).strip()}") from None
    if user is not None:
        parameters["user"] = user
    found = parameters.pop("password", None)
    return Database(
        {name: str(value) for name, value in parameters.items()},
        password if password is not None else (None if found is None else str(found)),
    )


def _of_jdbc(name: str, value: str) -> tuple[str, str]:
    if name == "currentSchema":
        return "options", f"-csearch_path={value}"
    if name == "ssl":
        return "sslmode", "verify-full" if value in ("", "true") else "prefer"
    return _JDBC_NAMES.get(name, name), value


def parse_name(text: str) -> tuple[str, ...]:
    """The parts of ``table`` or ``schema.table``.

    As in SQL, a part without double quotes is folded to lower case.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no table's name: write table, schema.table, or "
            f'"Schema"."Table" with double quotes'
        )
    return tuple(
        part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()
        for part in match.groups()
        if part is not None
    )


def quoted(*parts: str) -> str:
    """A name as SQL text, every part in double quotes."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


@contextmanager
def translated() -> Iterator[None]:
    """Convert errors of psycopg to errors of this package.

    An error of the data or the schema becomes a `UsageError`, as no retry can help. All others
    become a `ConnectionLostError`: the outcome is unknown and another attempt may succeed.
    """
    psycopg = _driver()
    try:
        yield
    except psycopg.errors.CardinalityViolation:
        raise UsageError(
            "two rows of one micro-batch have the same key_columns: aggregate them, or drop "
            "duplicates, before the sink"
        ) from None
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
        raise UsageError(f"PostgreSQL refuses the batch: {_primary(error)}") from None
    except psycopg.Error as error:
        raise ConnectionLostError(f"PostgreSQL: {_primary(error)}") from None


def _primary(error: Any) -> str:
    """The first line only: the details of a server's message quote the row."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0][:500]


def _driver() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError:
        raise UsageError(
            "exactly_once_jdbc needs psycopg on the driver and on every executor: "
            f"{how_to_install('postgres')}"
        ) from None
    return psycopg
