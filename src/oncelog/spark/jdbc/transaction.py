"""The batch driver's transaction in a database: epoch, marker, and one transaction per batch.

One row per application in the marker table holds its epoch, its last marker, and where that batch
ended in its Kafka sources (INV-10):

- `open` raises the epoch. It waits for a transaction of an older epoch that holds the row, so the
  marker it then reads is definitive.
- `append` begins the one transaction of the batch. It locks the application's row first, and is
  fenced when the epoch has changed. Then it checks that the staging table holds all rows that the
  tasks reported, moves them into the target table and writes the marker.
- `end` commits it. When the reply is lost, the batch driver opens again and reads the marker.

The staging table belongs to one epoch and is UNLOGGED: a crash of the server empties it, which the
check of the row count turns into another attempt. Rows of failed attempts and tasks stay in it
under their own numbers until it is truncated; they are never read.

Synchronous, though its methods are coroutines: the batch driver awaits a Kafka client elsewhere.
`oncelog.spark.jdbc.runner` runs them.
"""

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.client.errors import ConnectionLostError, FencedError, RetriableError
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import StoppedError, UsageError
from oncelog.spark.jdbc.database import Database, cancel, parse_name, quoted, translated
from oncelog.spark.jdbc.target import Target
from oncelog.spark.source_offsets import Places, parse_places, places_json

if TYPE_CHECKING:
    import psycopg

__all__ = ["MARKER_PARTITION", "PostgresTransaction", "StagedRows"]

MARKER_PARTITION: Final = TopicPartition("postgresql", 0)
"""The name of the batch driver's marker, which the application's row stores."""

REACH_S_MAX: Final = 30.0
"""How long a start, or an attempt, tries to reach a database that does not answer."""

REACH_PAUSE_S: Final = 0.5

LOCK_WAIT_MS: Final = 60_000
"""How long `open` waits for a transaction of an older epoch to end."""

IDLE_MS: Final = 30_000
"""The server ends an idle transaction after this time: that of a frozen driver, for example.

Below `LOCK_WAIT_MS`, so that its successor can open.
"""

STAGED_ROWS_COUNT_MAX: Final = 50_000
"""The staging table is truncated when it has so many rows that are not needed.

A truncation syncs files, which costs tens of milliseconds; reading past old rows costs less.
"""

_MARKER_TABLE: Final = """
CREATE TABLE {} (application_id text PRIMARY KEY, epoch bigint NOT NULL, marker text,
                 source_offsets text, opened_at timestamptz NOT NULL, committed_at timestamptz)
"""
_COLUMN: Final = "ALTER TABLE {} ADD COLUMN IF NOT EXISTS source_offsets text"
"""For a marker table that was made before the column."""
_OPEN: Final = """
INSERT INTO {} AS m (application_id, epoch, opened_at) VALUES (%s, 1, now())
ON CONFLICT (application_id) DO UPDATE SET epoch = m.epoch + 1, opened_at = now()
RETURNING epoch, marker, source_offsets
"""
_FENCE: Final = """
UPDATE {} SET marker = %s, source_offsets = NULL, committed_at = now()
WHERE application_id = %s AND epoch = %s
"""
_OFFSETS: Final = "UPDATE {} SET source_offsets = %s WHERE application_id = %s"
_MARKER: Final = "SELECT marker FROM {} WHERE application_id = %s"
_EXISTS: Final = "SELECT to_regclass(%s) IS NOT NULL"
_COLUMNS: Final = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)"
_STAGES: Final = """
SELECT c.relname FROM pg_class c JOIN pg_class m ON m.relnamespace = c.relnamespace
WHERE m.oid = to_regclass(%s) AND c.relkind = 'r' AND starts_with(c.relname::text, %s)
"""
_DURABLE: Final = """
SELECT set_config('synchronous_commit', 'on', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
"""


def _interrupt(connection: "psycopg.Connection[Any]", copy: socket.socket) -> None:
    """End what runs on the connection: at the server if it answers, and here in any case."""
    with copy:
        cancel(connection)
        _shut_down(copy)


def _shut_down(one: socket.socket) -> None:
    with suppress(OSError):  # The server may have closed it already.
        one.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows that an accepted attempt of a task copied into the staging table."""

    task_attempt_id: int
    row_count: int


class PostgresTransaction:
    """An `oncelog.spark.batch_protocol.Transaction` in PostgreSQL.

    `producer_id` is the application's epoch, `producer_epoch` the number of the write attempt in
    it. `staged` is set by the batch, after its tasks ended and before the driver commits.
    """

    def __init__(
        self, database: Database, application_id: str, marker_table: str, target: Target
    ) -> None:
        self._database = database
        self._application_id = application_id
        self._marker_name = parse_name(marker_table)
        self._markers = quoted(*self._marker_name)
        self._target = target
        self._connection: psycopg.Connection[Any] | None = None
        # The connection's socket once more. libpq may close its own at any time, and then another
        # file of the process gets the number.
        self._socket: socket.socket | None = None
        self._is_ending = False
        self._abandoned = threading.Event()
        # `abandon` is called while another thread connects or closes.
        self._lock = threading.Lock()
        self._marker: str | None = None
        self._source_offsets: Places = {}
        self._rows_left = 0
        self.producer_id = 0
        self.producer_epoch = 0
        self.staged: Collection[StagedRows] = ()

    @property
    def staging(self) -> str:
        """The staging table of this epoch, as SQL text."""
        return quoted(*self._marker_name[:-1], f"{self._stage_prefix}{self.producer_id}")

    async def open(self) -> None:
        """Fence every older epoch, and read the marker."""
        await self.close()
        connection = self._reach()
        self._hold(connection)
        with translated():
            self._make_marker_table(connection)
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                opened = connection.execute(
                    _OPEN.format(self._markers), (self._application_id,)
                ).fetchone()
            if opened is None:
                raise ConnectionLostError("PostgreSQL did not return the epoch")
            self.producer_id, self._marker, offsets = opened
            self._source_offsets = parse_places(json.loads(offsets or "{}"))
            self.producer_epoch = 0
            self._drop_older_stages(connection)
            self._make_stage(connection)

    async def current_marker(self) -> str | None:
        """Return the marker without fencing anyone; it is definitive only after `open`."""
        with self._reach() as connection, translated():
            found = connection.execute(_EXISTS, (self._markers,)).fetchone()
            if found is None or not found[0]:
                return None
            row = connection.execute(
                _MARKER.format(self._markers), (self._application_id,)
            ).fetchone()
            return None if row is None else row[0]

    async def new_epoch(self) -> None:
        """Number the next write attempt; raises `FencedError` when another driver took over."""
        with translated():
            row = self._open_connection.execute(
                f"SELECT epoch FROM {self._markers} WHERE application_id = %s",
                (self._application_id,),
            ).fetchone()
        if row is None or row[0] != self.producer_id:
            raise self._fenced()
        self.producer_epoch += 1
        self.staged = ()

    async def committed_value(self, topic_partition: TopicPartition, key: bytes) -> bytes | None:
        """The marker that `open` read."""
        return None if self._marker is None else self._marker.encode()

    async def append(self, topic_partition: TopicPartition, key: bytes, value: bytes) -> None:
        """Begin the transaction: the fence and the marker, then the rows."""
        connection = self._open_connection
        self._is_ending = False
        with translated():
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(_DURABLE, (str(IDLE_MS),))
            fence = connection.execute(
                _FENCE.format(self._markers),
                (value.decode(), self._application_id, self.producer_id),
            )
            if fence.rowcount != 1:
                raise self._fenced()
            if self.staged:
                self._move_rows(connection)

    async def fetch_offsets(
        self, group_id: str, partitions: None = None, *, require_stable: bool = True
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return where the marker's batch ended in its sources, as `open` read both."""
        marker = self._marker or ""
        return {tp: OffsetAndMetadata(end, marker) for tp, end in self._source_offsets.items()}

    async def add_offsets(self, group_id: str) -> None:
        """Do nothing: PostgreSQL needs no such step."""

    async def txn_offset_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Record where the batch ends in its sources, beside the marker that `append` wrote."""
        ends = {tp: committed.offset for tp, committed in offsets.items()}
        with translated():
            self._open_connection.execute(
                _OFFSETS.format(self._markers), (json.dumps(places_json(ends)), group_id)
            )

    async def missing(
        self, partitions: Iterable[TopicPartition], known: Collection[TopicPartition] = ()
    ) -> set[TopicPartition]:
        """Return none: PostgreSQL keeps the offset of a deleted partition too."""
        return set()

    async def end(self, commit: bool) -> None:
        """COMMIT. The server answers ROLLBACK where the transaction had failed."""
        connection = self._open_connection
        self._is_ending = True
        with translated():
            answer = connection.execute("COMMIT" if commit else "ROLLBACK").statusmessage
            if commit and answer != "COMMIT":
                raise ConnectionLostError(f"PostgreSQL answered COMMIT with {answer}")
        self._tidy(connection)

    async def close(self) -> None:
        """Close the connection; the server rolls back what is open."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def abandon(self) -> None:
        """End the call that runs on another thread; the query was stopped.

        Its statement is cancelled, if the server still answers, so that it does not hold the
        application's row for long. A COMMIT is not: that would only end its wait for a replica.
        """
        with self._lock:
            self._abandoned.set()
            if self._connection is None or self._socket is None:
                return
            if self._is_ending:
                _shut_down(self._socket)
                return
            arguments = (self._connection, self._socket.dup())
        threading.Thread(target=_interrupt, args=arguments, daemon=True).start()

    def _hold(self, connection: "psycopg.Connection[Any]") -> None:
        with self._lock:
            self._connection = connection
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
            if self._abandoned.is_set():
                _shut_down(self._socket)

    @property
    def _stage_prefix(self) -> str:
        name = hashlib.sha256(self._application_id.encode()).hexdigest()[:12]
        return f"oncelog_stage_{name}_"

    @property
    def _open_connection(self) -> "psycopg.Connection[Any]":
        if self._connection is None:
            raise ConnectionLostError("the connection to PostgreSQL is closed")
        return self._connection

    def _fenced(self) -> FencedError:
        return FencedError(
            ErrorCode.producer_fenced,
            f"another driver took over application_id {self._application_id!r}",
        )

    def _reach(self) -> "psycopg.Connection[Any]":
        """Connect, also to a server that is starting."""
        deadline = time.monotonic() + REACH_S_MAX
        while True:
            try:
                return self._database.connect()
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
            if self._abandoned.wait(REACH_PAUSE_S):
                raise StoppedError("the query was stopped while PostgreSQL could not be reached")

    def _make_marker_table(self, connection: "psycopg.Connection[Any]") -> None:
        import psycopg

        found = connection.execute(_COLUMNS, (self._markers,)).fetchall()
        if ("source_offsets",) in found:
            return
        text = _COLUMN if found else _MARKER_TABLE
        statement = " ".join(text.format(self._markers).split())
        try:
            connection.execute(statement)
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            return  # Another application created it at the same time.
        except psycopg.ProgrammingError as error:
            raise UsageError(
                f"the marker table cannot be made or changed ({error.diag.message_primary}); have "
                f"it done, or name another with marker_table=...: {statement}"
            ) from None

    def _make_stage(self, connection: "psycopg.Connection[Any]") -> None:
        columns = ", ".join(quoted(name) for name in self._target.columns)
        # A table of this number belongs to a marker row that was removed, with its epochs.
        connection.execute(f"DROP TABLE IF EXISTS {self.staging}")
        connection.execute(
            f"CREATE UNLOGGED TABLE {self.staging} AS SELECT 0::bigint AS oncelog_attempt, "
            f"0::bigint AS oncelog_task, {columns} FROM {quoted(*self._target.name)} WITH NO DATA"
        )
        self._rows_left = 0

    def _drop_older_stages(self, connection: "psycopg.Connection[Any]") -> None:
        """Drop staging tables of fenced epochs, whose copies then fail.

        A locked one remains for now.
        """
        import psycopg

        rows = connection.execute(_STAGES, (self._markers, self._stage_prefix)).fetchall()
        for (name,) in rows:
            epoch = str(name).removeprefix(self._stage_prefix)
            if not epoch.isdecimal() or int(epoch) >= self.producer_id:
                continue
            try:
                with connection.transaction():
                    connection.execute("SET LOCAL lock_timeout = 1000")
                    stage = quoted(*self._marker_name[:-1], str(name))
                    connection.execute(f"DROP TABLE IF EXISTS {stage}")
            except psycopg.errors.LockNotAvailable:
                continue

    def _move_rows(self, connection: "psycopg.Connection[Any]") -> None:
        """Move rows from the staging table into the target, if all that were reported are there."""
        chosen = (self.producer_epoch, [rows.task_attempt_id for rows in self.staged])
        where = "WHERE oncelog_attempt = %s AND oncelog_task = ANY (%s)"
        counted = connection.execute(f"SELECT count(*) FROM {self.staging} {where}", chosen)
        found = (counted.fetchone() or (0,))[0]
        expected = sum(rows.row_count for rows in self.staged)
        if found != expected:
            raise ConnectionLostError(
                f"the staging table holds {found} of {expected} rows: the server crashed"
            )
        columns = ", ".join(quoted(name) for name in self._target.columns)
        connection.execute(
            f"INSERT INTO {quoted(*self._target.name)} ({columns}) "
            f"SELECT {columns} FROM {self.staging} {where} {self._on_conflict()}",
            chosen,
        )
        self._rows_left += expected

    def _on_conflict(self) -> str:
        keys = self._target.key_columns
        if not keys:
            return ""
        # In a table with only key columns an update sets the keys to themselves.
        others = [name for name in self._target.columns if name not in keys] or list(keys)
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
        return f"ON CONFLICT ({', '.join(map(quoted, keys))}) DO UPDATE SET {changes}"

    def _tidy(self, connection: "psycopg.Connection[Any]") -> None:
        """Truncate the staging table when it has too many old rows.

        The batch is committed, so errors are ignored; a table into which a lost task still copies
        is truncated later.
        """
        import psycopg

        if self._rows_left < STAGED_ROWS_COUNT_MAX:
            return
        try:
            with connection.transaction():
                connection.execute(f"LOCK TABLE {self.staging} IN ACCESS EXCLUSIVE MODE NOWAIT")
                connection.execute(f"TRUNCATE {self.staging}")
            self._rows_left = 0
        except psycopg.Error:
            return
