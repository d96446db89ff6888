"""Connects to a database and classifies its errors. Only this module imports the driver.

A password, or another secret, is never part of a repr, a message or a plan.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_plus, urlencode

from oncelog.client.errors import ConnectionLostError
from oncelog.runtime.installation import how_to_install
from oncelog.spark.errors import UsageError

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "Database",
    "cancel",
    "parse_name",
    "parse_url",
    "quoted",
    "secret_names",
    "translated",
]

CONNECT_TIMEOUT_S: Final = 10
CANCEL_TIMEOUT_S: Final = 2
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

_FLAGS: Final = ("ssl", "sslmode")
_SSL: Final = {"": "verify-full", "true": "verify-full", "false": "prefer"}
"""What ``ssl`` asks for. The JDBC driver takes any other value for false, and we take none."""
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SECRETS: Final = frozenset({"scram_client_key", "scram_server_key"})
"""Secrets that libpq does not mark as such."""

_URL: Final = re.compile(r"postgres(?:ql)?://(?:[^@/]*@)?[^?]*")
"""What stands before the parameters. As in libpq, a user's name and password end with an @."""

_PART: Final = r'("(?:[^"]|"")+"|[^".\s;]+)'
_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})?")


@dataclass(frozen=True, slots=True)
class Database:
    """libpq's connection parameters. Picklable: tasks carry it to the executors."""

    parameters: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def connect(self) -> "psycopg.Connection[Any]":
        """A connection in autocommit mode.

        Raises `ConnectionLostError` when the database cannot be reached, or refuses us.
        """
        with translated():
            connection: psycopg.Connection[Any] = _driver().connect(
                **{**_DEFAULTS, **self.parameters, **self.secrets},
                autocommit=True,
                prepare_threshold=None,  # a pooler may change the server's session
            )
        return connection


def parse_url(url: str, user: str | None, password: str | None) -> Database:
    """Read ``jdbc:postgresql://host:port/database?...``, or the same without ``jdbc:``.

    `user` and `password` win over those in the URL.
    """
    text = url.removeprefix("jdbc:")
    begin = _URL.match(text)
    if begin is None:
        raise UsageError("url must look like jdbc:postgresql://host:5432/database")
    query = urlencode(_of_jdbc(_parameters(text[begin.end() + 1 :])), quote_via=quote)
    psycopg = _driver()
    try:
        found = psycopg.conninfo.conninfo_to_dict(f"{begin[0]}?{query}")
    except psycopg.ProgrammingError:
        # Its message quotes parts of the URL, and the password may be among them.
        raise UsageError(
            "url cannot be read: write jdbc:postgresql://host:5432/database?name=value&..., and "
            "special characters of names and passwords as in %40 for @"
        ) from None
    values = {name: str(value) for name, value in found.items() if value is not None}
    if user is not None:
        values["user"] = user
    if password is not None:
        values["password"] = password
    secrets = {name: values.pop(name) for name in secret_names() & values.keys()}
    return Database(values, secrets)


def secret_names() -> frozenset[str]:
    """The names of libpq's parameters whose values are secrets."""
    options = _driver().pq.Conninfo.get_defaults()
    hidden = {option.keyword.decode() for option in options if option.dispchar == b"*"}
    known = {option.keyword.decode() for option in options}
    return frozenset(hidden | (_SECRETS & known))


def _parameters(query: str) -> dict[str, str]:
    """The parameters of a URL, as the JDBC driver splits them: the last of a name counts."""
    parameters = {}
    for part in filter(None, query.split("&")):
        name, separator, value = part.partition("=")
        if not separator and name not in _FLAGS:
            # Perhaps it is the rest of a password with an & in it.
            raise UsageError(
                "url: only ssl may stand without a value; write an & within a value as %26"
            )
        parameters[unquote_plus(name)] = unquote_plus(value)
    known = {option.keyword.decode() for option in _driver().pq.Conninfo.get_defaults()}
    unknown = parameters.keys() - known - _JDBC_NAMES.keys() - {"ssl", "currentSchema"}
    if unknown:
        raise UsageError(f"url: PostgreSQL's client library has no parameter {min(unknown)!r}")
    return parameters


def _of_jdbc(given: Mapping[str, str]) -> dict[str, str]:
    """The parameters by libpq's names. `sslmode` counts before `ssl`, in any order."""
    parameters = {_JDBC_NAMES.get(name, name): value for name, value in given.items()}
    schema, ssl = parameters.pop("currentSchema", None), parameters.pop("ssl", None)
    if schema is not None:
        path = schema.replace("\\", "\\\\").replace(" ", "\\ ")
        before = parameters.get("options", "")
        parameters["options"] = f"{before} -csearch_path={path}".strip()
    if ssl is not None:
        if ssl.lower() not in _SSL:
            raise UsageError("url: ssl is true or false; sslmode names other ways")
        parameters.setdefault("sslmode", _SSL[ssl.lower()])
    mode = parameters.get("sslmode")
    if mode is not None:
        if mode.lower() not in _SSL_MODES:
            raise UsageError(f"url: sslmode is one of {', '.join(_SSL_MODES)}")
        parameters["sslmode"] = mode.lower()
    return parameters


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


def cancel(connection: "psycopg.Connection[Any]") -> None:
    """Cancel the statement that another thread runs, if the server answers within 2 seconds.

    Does nothing with libpq before 17, which would wait for an answer without an end.
    """
    psycopg = _driver()
    if psycopg.capabilities.has_cancel_safe():
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)


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
