"""Records a broker's current operations, so that its death can be classified.

A `BrokerWatch` belongs to one incarnation of a broker. `WatchedDisk` wraps the broker's disk and
records each operation of a crash row before it runs, so that a death during it is recorded too;
`oncelog.simulation.observe` reports what the coordinators applied. `at_death` returns the rows. The
broker's behaviour does not change.

It is cheap: only appends to `__transaction_state` are decoded; of other appends one byte is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from oncelog.coordinator.shard import CoordinatorRecord
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.core.integers import integers
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import iter_records
from oncelog.runtime.disk import Disk, DiskFile, DiskLock, Lane, StorageFailure
from oncelog.simulation.archive import Archive
from oncelog.simulation.crashes import CrashContext, CrashPlace
from oncelog.simulation.replaced import ReplacedCoordinators
from oncelog.storage.files import INDEX_SUFFIX, LOG_SUFFIX, PARTITION_METADATA_NAME
from oncelog.storage.folder_names import DELETE_SUFFIX
from oncelog.transaction import records
from oncelog.transaction.states import TransactionMetadata, TransactionState

__all__ = ["BrokerWatch", "WatchedDisk", "WatchedFile"]

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

_CONTROL_BYTE = 22
_CONTROL_BIT = 0x20
_PRODUCER_ID = integers(">q")
_PRODUCER_ID_AT = 43
_POWER = "power"


class _Transaction:
    """One transactional id: its applied state, its append in flight, and its markers."""

    __slots__ = ("marker_count", "partition_count", "pending", "state")

    def __init__(self) -> None:
        self.state: TransactionState | None = None
        self.pending: TransactionState | None = None
        self.partition_count = 0
        self.marker_count = 0

    def row(self) -> CrashPlace | None:
        """Return the crash row of a death now, for this id."""
        state = self.pending
        if state is TransactionState.ONGOING:
            return CrashPlace.BEGIN_UNANSWERED
        if state is not None:
            if state.is_prepared:
                return CrashPlace.PREPARE_UNANSWERED
            return CrashPlace.COMPLETE_UNANSWERED if state.is_complete else None
        if self.state is TransactionState.ONGOING:
            return CrashPlace.ONGOING
        if self.state is None or not self.state.is_prepared:
            return None
        if not self.marker_count:
            return CrashPlace.PREPARED
        some = self.marker_count < self.partition_count
        return CrashPlace.SOME_MARKERS if some else CrashPlace.ALL_MARKERS


class BrokerWatch:
    """The records of one incarnation. `phase`: "recovering", "loading", "serving" or "stopping"."""

    __slots__ = (
        "_archive",
        "_by_producer",
        "_dirty",
        "_doomed",
        "_finish",
        "_new_folders",
        "_sealed",
        "_transactions",
        "_written",
        "deleting",
        "doing",
        "loading_count",
        "on_synced",
        "phase",
        "replaced",
        "sealing",
    )

    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self.phase = "recovering"
        self.loading_count = 0
        """The count of shards that were created and are still loading."""
        self.doing: CrashPlace | None = None
        """The row of the running file operation."""
        self.deleting = False
        """Topics were removed from the metadata, and their partitions are not yet deleted."""
        self.sealing = False
        """The index of a segment was written, and the next segment is not yet created."""
        self.on_synced: Callable[[], None] | None = None
        """Called when an fsync of a `.log` has ended."""
        self.replaced: ReplacedCoordinators | None = None
        """Finds what coordinators answer that have been replaced."""
        self._finish: Callable[[], None] | None = None
        """Called when the operation is done; None if it has several steps."""
        self._transactions: dict[str, _Transaction] = {}
        self._by_producer: dict[int, _Transaction] = {}
        self._written: dict[str, None] = {}
        self._dirty: dict[str, None] = {}
        self._sealed: dict[str, str] = {}
        self._doomed: dict[str, None] = {}
        self._new_folders: dict[str, None] = {}

    # What the coordinator's shard applied.

    def applied(self, metadata: TransactionMetadata) -> None:
        """A record about a transactional id was committed, or replayed."""
        transaction = self._transaction(metadata.transactional_id)
        transaction.state = metadata.state
        transaction.pending = None
        transaction.marker_count = 0
        transaction.partition_count = len(metadata.partitions)
        self._by_producer[metadata.producer_id] = transaction

    def forgotten(self, transactional_id: str) -> None:
        """The tombstone of an id was committed, or replayed."""
        self._transactions.pop(transactional_id, None)

    def _transaction(self, transactional_id: str) -> _Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = self._transactions[transactional_id] = _Transaction()
        return transaction

    # Operations of the disk.

    def appending(self, path: str, data: Buffer) -> bool:
        """Record that a write to a `.log` begins. Returns whether its end has to be reported."""
        self._dirty[path] = self._written[path] = None
        if f"/{TRANSACTION_STATE_TOPIC}-" in path:
            self._appending_states(data)
        elif data[_CONTROL_BYTE] & _CONTROL_BIT:
            self.doing = CrashPlace.MARKER_WRITE
            transaction = self._by_producer.get(_PRODUCER_ID.unpack_from(data, _PRODUCER_ID_AT)[0])
            self._finish = partial(_marked, transaction)
        elif f"/{CONSUMER_OFFSETS_TOPIC}-" in path:
            self.doing, self._finish = CrashPlace.OFFSETS_WRITE, _nothing
        else:
            return False
        return True

    def _appending_states(self, data: Buffer) -> None:
        moves: list[tuple[_Transaction, TransactionState]] = []
        for position, header in iter_headers(data):
            for record in iter_records(data, position, header):
                if record.key is None:
                    continue
                transactional_id, metadata = records.decode(
                    CoordinatorRecord(record.key, record.value)
                )
                if transactional_id is not None and metadata is not None:
                    moves.append((self._transaction(transactional_id), metadata.state))
        states = [state for _, state in moves]
        if any(state.is_prepared for state in states):
            self.doing = CrashPlace.PREPARE_WRITE
        elif any(state.is_complete for state in states):
            self.doing = CrashPlace.COMPLETE_WRITE
        self._finish = partial(_appended, moves)

    def syncing(self, path: str) -> None:
        """Record that an fsync of a file or folder begins."""
        self.doing, self._finish = CrashPlace.IN_FSYNC, partial(self._synced, path)

    def _synced(self, path: str) -> None:
        self._dirty.pop(path, None)
        self._sealed.pop(path, None)
        if self.on_synced is not None and path.endswith(LOG_SUFFIX):
            self.on_synced()

    def finished(self) -> None:
        """Record that the operation is done."""
        finish, self.doing, self._finish = self._finish, None, None
        if finish is not None:
            finish()

    def failed(self) -> None:
        """Record that the operation failed."""
        self.doing = self._finish = None

    def created(self, path: str) -> None:
        """Record that a `.log` was created, which ends the roll of its folder."""
        self.sealing = False
        prefix = path[: path.rindex("/") + 1]
        for other in self._dirty:
            if other.startswith(prefix) and other != path:
                self._sealed[other] = path

    def writing_atomically(self, path: str) -> None:
        """Record that the replacement of a small file begins, which has several steps."""
        self.doing, self._finish = CrashPlace.WRITE_ATOMIC, None
        if path.endswith(INDEX_SUFFIX) and path[: -len(INDEX_SUFFIX)] + LOG_SUFFIX in self._written:
            # The first file of a roll; a new or an opened log writes its own as well.
            self.sealing = True

    def written_atomically(self, path: str) -> None:
        """Record that the file was replaced."""
        self.doing = None
        if path.endswith(PARTITION_METADATA_NAME):
            self._new_folders.pop(path[: path.rindex("/")], None)

    def made_folder(self, path: str) -> None:
        """Record that a partition's folder was created."""
        self._new_folders[path] = None

    def renaming(self, source: str, target: str) -> None:
        """Record that a rename begins."""
        if self._archive is not None:
            self._archive.renaming(source, target, recovering=self.phase == "recovering")

    def renamed(self, source: str, target: str) -> None:
        """Record a rename; a folder is renamed before it is deleted."""
        if target.endswith(DELETE_SUFFIX):
            self._doomed[target] = None
            self._new_folders.pop(source, None)

    def removed_tree(self, path: str) -> None:
        """Record that a folder was deleted."""
        self._doomed.pop(path, None)
        prefix = f"{path}/"
        for forgotten in (self._dirty, self._sealed, self._written):
            for name in [name for name in forgotten if name.startswith(prefix)]:
                del forgotten[name]

    # The death.

    def at_death(self, at_s: float, who: str, cause: str, moment: str = "") -> CrashContext:
        """Return the crash rows of a death now, each once.

        `moment`: if a file operation was running, whether the death was "before" it, "after" it, or
        during it ("torn", or "" if unknown).
        """
        if self._finish is not None:
            if moment == "before":
                self.failed()
            elif moment == "after":
                self.finished()
        rows = dict.fromkeys(self._rows(cause))
        return CrashContext(at_s, who, cause, tuple(rows))

    def _rows(self, cause: str) -> Iterator[CrashPlace]:
        if self.doing is not None:
            yield self.doing
        for transaction in self._transactions.values():
            row = transaction.row()
            if row is not None:
                yield row
        if cause == _POWER and self._dirty:
            yield CrashPlace.UNSYNCED_APPEND
        if cause == _POWER and self._sealed:
            yield CrashPlace.ROLL_UNFLUSHED
        if self.sealing and self.phase == "serving":
            yield CrashPlace.ROLL_BEFORE_SEGMENT
        if self._new_folders:
            yield CrashPlace.TOPIC_CREATION
        if self._doomed:
            yield CrashPlace.DELETION_FOLDER
        elif self.deleting:
            yield CrashPlace.DELETION_METADATA
        if self.phase == "recovering":
            yield CrashPlace.RECOVERING
        elif self.phase == "stopping":
            yield CrashPlace.STOPPING
        elif self.loading_count:
            yield CrashPlace.LOADING


def _nothing() -> None:
    """An operation of which nothing is kept."""


def _marked(transaction: _Transaction | None) -> None:
    if transaction is not None:
        transaction.marker_count += 1


def _appended(moves: list[tuple[_Transaction, TransactionState]]) -> None:
    for transaction, state in moves:
        transaction.pending = state


class WatchedFile:
    """A file of a `WatchedDisk`."""

    __slots__ = (
        "_file",
        "_is_log",
        "_watch",
        "close",
        "path",
        "pread",
        "pread_cached",
        "size",
        "truncate",
    )

    def __init__(self, file: DiskFile, path: str, watch: BrokerWatch) -> None:
        self._file = file
        self._watch = watch
        self._is_log = path.endswith(LOG_SUFFIX)
        self.path = path
        # Not watched, so they cost nothing more.
        self.pread = file.pread
        self.pread_cached = file.pread_cached
        self.size = file.size
        self.truncate = file.truncate
        self.close = file.close

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write, and record it."""
        is_told = self._is_log and len(data) > 0 and self._watch.appending(self.path, data)
        try:
            self._file.pwrite(data, position)
        except StorageFailure:
            self._watch.failed()
            raise
        if is_told:
            self._watch.finished()

    def fsync(self) -> None:
        """Make durable."""
        self._watch.syncing(self.path)
        try:
            self._file.fsync()
        except StorageFailure:
            self._watch.failed()
            raise
        self._watch.finished()


class WatchedDisk:
    """A disk that reports to a watch; see the module. It is used by one process."""

    def __init__(self, disk: Disk, watch: BrokerWatch) -> None:
        self._disk = disk
        self._watch = watch
        self.files = disk.files
        self.exists = disk.exists
        self.list = disk.list
        self.is_dir = disk.is_dir
        self.modified_ms = disk.modified_ms
        self.set_modified_ms = disk.set_modified_ms
        self.place_of = disk.place_of
        self.remove = disk.remove
        self.read = disk.read

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open; a `.log` that is created ends the roll of its folder."""
        file = WatchedFile(self._disk.open(path, create=create), path, self._watch)
        if create and path.endswith(LOG_SUFFIX):
            self._watch.created(path)
        return file

    def mkdir(self, path: str) -> None:
        """Make a folder; a new one in a log directory is a partition's."""
        is_new = self._watch.phase != "recovering" and not self._disk.exists(path)
        self._disk.mkdir(path)
        if is_new:
            self._watch.made_folder(path)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        self._watch.renaming(source, target)
        self._disk.rename(source, target)
        self._watch.renamed(source, target)

    def remove_tree(self, path: str) -> None:
        """Remove a folder."""
        self._disk.remove_tree(path)
        self._watch.removed_tree(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a small file."""
        self._watch.writing_atomically(path)
        try:
            self._disk.write_atomic(path, data, sync=sync)
        except StorageFailure:
            self._watch.failed()
            raise
        self._watch.written_atomically(path)

    def sync_dir(self, path: str) -> None:
        """Make names durable."""
        self._watch.syncing(path)
        try:
            self._disk.sync_dir(path)
        except StorageFailure:
            self._watch.failed()
            raise
        self._watch.finished()

    def usage(self, path: str) -> tuple[int, int] | None:
        """See `Disk.usage`."""
        return self._disk.usage(path)

    def lock(self, path: str) -> DiskLock:
        """Lock the folder."""
        return self._disk.lock(path)

    async def run(self, work: Callable[[], T], lane: Lane = Lane.UPKEEP) -> T:
        """Run blocking work."""
        return await self._disk.run(work, lane)
