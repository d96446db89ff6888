"""Plays one instance of a transactional producer, as stock clients do, under TV1 or TV2.

An error fails the transaction (`error`, not `is_fatal`): it can only be aborted, under a new epoch
if necessary (KIP-360). Or it fails the instance (`is_fatal`): then a new instance has to start. The
outcome of a transaction is recorded once: ended, or unknown.

Sources: `TransactionManager` (Java), `rdkafka_txnmgr.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from oncelog.client import requests
from oncelog.client.values import OffsetAndMetadata
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor, ResponseT
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    ProducerFenced,
    ProducerInitialized,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)
from oncelog.simulation.peers.batches import Batch
from oncelog.simulation.peers.flavors import FLAVORS, JAVA_WITHOUT_TV2
from oncelog.simulation.peers.identity import CallOutcome, call_coordinator
from oncelog.simulation.peers.sending import PeerSender
from oncelog.simulation.peers.wire import GROUP, TRANSACTION, LostError, PeerWire

__all__ = ["NO_MEMBER", "Membership", "Transactional"]

Membership = tuple[int, str, str | None]
"""Generation, member id and instance id of the member that commits offsets (KIP-447)."""

NO_MEMBER: Final[Membership] = (-1, "", None)

_FENCED: Final = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced})
_NEEDS_BUMP: Final = frozenset(
    {ErrorCode.unknown_producer_id, ErrorCode.invalid_producer_id_mapping}
)
_ABORTABLE_CALL: Final = _NEEDS_BUMP | {
    ErrorCode.transaction_abortable,
    ErrorCode.operation_not_attempted,
    ErrorCode.illegal_generation,
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.stale_member_epoch,
    ErrorCode.group_id_not_found,
}
_ANY_START: Final = frozenset({None, ErrorCode.unknown_server_error}) | _FENCED
_FATAL_CALL: Final = _FENCED | {ErrorCode.invalid_txn_state}
_FATAL_PRODUCE: Final = frozenset(
    {ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping}
)


class Transactional:
    """See the module's docstring. `transaction` is the number of the last one."""

    def __init__(self, context: ClientContext, transactional_id: str) -> None:
        self.context = context
        self.wire = PeerWire(context, FLAVORS[context.get("flavor", "java")])
        self.sender = PeerSender(context, self.wire, transactional_id=transactional_id)
        self.transactional_id = transactional_id
        self.timeout_ms = int(context.get("transaction_timeout_ms", 3_000))
        self.transaction = -1
        self.error: ErrorCode | None = None
        self.is_fatal = False
        self.is_v2 = False
        self._call_s = float(context.get("call_timeout_ms", 15_000)) / 1000
        self._open = False
        """Whether the outcome of the current transaction is not recorded yet."""
        self._started = False
        """Whether the coordinator may know of the current transaction."""
        self._bump = False
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()

    @property
    def is_begun(self) -> bool:
        """Return whether the coordinator may know of the current transaction."""
        return self._started

    # --- the beginning ----------------------------------------------------------------

    async def start(self) -> bool:
        """Call InitProducerId as a new process, which fences all earlier ones (INV-5)."""
        await self._learn_version()
        outcome = await self._init(-1, -1, time_s=max(60.0, self._call_s))
        if outcome.code is ErrorCode.none:
            return True
        if outcome.code not in _ANY_START and not self.context.may_lack(outcome.code):
            self.context.stuck(f"InitProducerId answered {_name(outcome.code)}")
        self._ruin(outcome.code)
        return False

    async def _learn_version(self) -> None:
        if self.wire.flavor.transaction_version < 2:
            return
        attempt = 0
        while True:
            try:
                connection = await self.wire.open()
                break
            except LostError:
                await self.context.back_off(attempt)
                attempt += 1
        self.is_v2 = self.wire.has_transaction_version_2(connection)
        self.sender.implicit = self.is_v2

    async def _init(
        self, producer_id: int, epoch: int, time_s: float
    ) -> CallOutcome[InitProducerIdResponse]:
        request = requests.init_producer_id_request(
            self.transactional_id, self.timeout_ms, producer_id, epoch
        )
        outcome = await self._call(
            ApiKey.INIT_PRODUCER_ID, request, lambda a: a.error_code, time_s=time_s
        )
        if outcome.code is ErrorCode.none and outcome.answer is not None:
            identity = int(outcome.answer.producer_id), int(outcome.answer.producer_epoch)
            self.context.record(ProducerInitialized, self.transactional_id, *identity)
            if min(identity) < 0:
                self.context.stuck(f"InitProducerId gave {identity}")
            self.sender.identify(*identity)
            self._bump = False
        return outcome

    def begin(self) -> None:
        """Begin a transaction. The first partition registers it with the coordinator."""
        self.transaction += 1
        self.error = None
        self._open = True
        self._started = False
        self._added.clear()
        self._groups.clear()
        self.context.record(TransactionBegan, self.transaction, self.transactional_id)

    # --- inside -----------------------------------------------------------------------

    async def send(self, batches: Sequence[Batch]) -> None:
        """Send batches in the transaction; an error fails it."""
        if self.error is None and not self.is_v2:
            await self._add_partitions(batch.at for batch in batches)
        waiting = list(batches)
        while waiting and self.error is None:
            free_count = self.sender.partitions_free_count()
            if free_count:
                self._started = True
                await self.sender.offer(waiting[:free_count])
                del waiting[:free_count]
            else:
                await self.sender.attend(1)
            self._check_sender()

    async def flush(self) -> None:
        """Wait until the outcome of all sent batches is known."""
        await self.sender.drain()
        self._check_sender()

    async def _add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        fresh = sorted(set(partitions) - self._added)
        if not fresh:
            return
        request = requests.add_partitions_request(
            self.transactional_id, self.sender.producer_id, self.sender.epoch, fresh
        )
        outcome = await self._call(ApiKey.ADD_PARTITIONS_TO_TXN, request, _first_of_partitions)
        self._started = self._started or outcome.perhaps or outcome.code is ErrorCode.none
        if outcome.code is ErrorCode.none:
            self._added.update(fresh)
        else:
            self._failed(ApiKey.ADD_PARTITIONS_TO_TXN, outcome.code)

    async def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], member: Membership = NO_MEMBER
    ) -> None:
        """Commit a group's offsets in the transaction (INV-6); an error fails it."""
        if self.error is None and not self.is_v2 and group_id not in self._groups:
            await self._add_offsets(group_id)
        if self.error is not None:
            return
        self._started = True
        ids = {at.topic: self.wire.topic_id(at.topic) for at in offsets}
        outcome = await call_coordinator(
            self.context,
            self.wire,
            GROUP,
            group_id,
            ApiKey.TXN_OFFSET_COMMIT,
            self._offsets_request(group_id, offsets, member, ids),
            lambda answer: _first(requests.partition_errors(answer, ids)),
            time_s=self._call_s,
            at_most=requests.txn_offsets_version_max(ids.values(), is_tv1=not self.is_v2),
            lane="",
        )
        if outcome.code is ErrorCode.none:
            self.context.record(TransactionOffsets, self.transaction, group_id, dict(offsets))
            return
        if outcome.code is None:
            # The ids may be those of topics that were deleted.
            await self.wire.refresh(ids)
        self._failed(ApiKey.TXN_OFFSET_COMMIT, outcome.code)

    async def _add_offsets(self, group_id: str) -> None:
        request = requests.add_offsets_request(
            self.transactional_id, self.sender.producer_id, self.sender.epoch, group_id
        )
        outcome = await self._call(ApiKey.ADD_OFFSETS_TO_TXN, request, lambda a: a.error_code)
        self._started = self._started or outcome.perhaps or outcome.code is ErrorCode.none
        if outcome.code is ErrorCode.none:
            self._groups.add(group_id)
        else:
            self._failed(ApiKey.ADD_OFFSETS_TO_TXN, outcome.code)

    def _offsets_request(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        member: Membership,
        topic_ids: Mapping[str, UUID | None],
    ) -> TxnOffsetCommitRequest:
        generation, member_id, instance_id = member
        request = requests.txn_offset_commit_request(
            self.transactional_id,
            self.sender.producer_id,
            self.sender.epoch,
            group_id,
            {at: OffsetAndMetadata(offset) for at, offset in offsets.items()},
            topic_ids,
        )
        return replace(
            request,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )

    # --- the end ----------------------------------------------------------------------

    async def commit(self) -> bool:
        """Flush and commit. Return False if it is not known to have committed: abort then."""
        await self.flush()
        if self.error is not None:
            return False
        self.context.record(TransactionEnding, self.transaction, True)
        if not self._started:
            self._tell(True)
            return True
        outcome = await self._end(True)
        if outcome.code is ErrorCode.none:
            self._tell(True)
            await self._ended(outcome)
            return True
        self._failed(ApiKey.END_TXN, outcome.code)
        if outcome.perhaps:
            self._tell_unknown(_name(outcome.code))
            self.is_fatal = True
        else:
            self._tell(False)
        return False

    async def abort(self) -> None:
        """Abort the transaction, if necessary with a new epoch."""
        await self.flush()
        if self.is_fatal:
            self.give_up("fenced")
            return
        if self._open:
            self.context.record(TransactionEnding, self.transaction, False)
        self._tell(False)
        self.error = None
        if self._bump and self.wire.flavor.bump_replaces_abort:
            await self._renew_epoch()
            return
        if not self._started:
            if self._bump and not self.is_v2:
                await self._renew_epoch()
            return
        outcome = await self._end(False)
        if outcome.code is ErrorCode.none:
            await self._ended(outcome)
        elif outcome.code in _NEEDS_BUMP:
            await self._renew_epoch()
        else:
            self._failed(ApiKey.END_TXN, outcome.code)
            self._ruin(outcome.code)

    async def end_and_leave(self, commit: bool) -> None:
        """Send EndTxn and end without reading its response."""
        await self.flush()
        if self.error is not None or not self._started:
            self.give_up("left")
            return
        address = await self.wire.coordinator(TRANSACTION, self.transactional_id)
        try:
            connection = await self.wire.open(address, self.wire.lane(TRANSACTION))
            self.context.record(TransactionEnding, self.transaction, commit)
            at_most = self._at_most(ApiKey.END_TXN)
            self.wire.write(connection, ApiKey.END_TXN, self._end_request(commit), at_most)
        except (LostError, DisconnectedError):
            self.give_up("left")
            return
        if commit:
            self._tell_unknown("left without reading")
        self.give_up("left")

    def give_up(self, why: str) -> None:
        """End as a process does: this instance never commits its open transaction."""
        self.sender.drop(why)
        self._tell(False)
        self.is_fatal = True
        if self.context.chance(0.5):
            self.wire.walk_away()
        else:
            self.wire.close()

    async def _end(self, commit: bool) -> CallOutcome[EndTxnResponse]:
        return await self._call(
            ApiKey.END_TXN, self._end_request(commit), lambda answer: answer.error_code
        )

    def _end_request(self, commit: bool) -> EndTxnRequest:
        return requests.end_txn_request(
            self.transactional_id, self.sender.producer_id, self.sender.epoch, commit
        )

    async def _ended(self, outcome: CallOutcome[EndTxnResponse]) -> None:
        """Set the epoch that the end returned (TV2), or the one that this client needs (TV1)."""
        if not self.is_v2:
            if self._bump:
                await self._renew_epoch()
            return
        if outcome.answer is None:
            raise ValueError("a transaction that ended has an answer")
        producer_id, epoch = int(outcome.answer.producer_id), int(outcome.answer.producer_epoch)
        known = self.sender.producer_id, self.sender.epoch
        if producer_id < 0 or epoch < 0 or (producer_id == known[0] and epoch <= known[1]):
            self.context.stuck(f"EndTxn of {known} gave {producer_id}, {epoch}")
            self._ruin(None)
            return
        self.sender.identify(producer_id, epoch)
        self._bump = False

    async def _renew_epoch(self) -> None:
        if not self.wire.flavor.can_bump:
            self._ruin(self.error)
            return
        outcome = await self._init(self.sender.producer_id, self.sender.epoch, self._call_s)
        if outcome.code is not ErrorCode.none:
            self._ruin(outcome.code)

    # --- errors -----------------------------------------------------------------------

    def _check_sender(self) -> None:
        code = self.sender.failure
        if code is None or self.error is not None:
            return
        self.error = code
        self._bump = not self.is_v2
        epoch_is_fatal = self.wire.flavor.produce_epoch_is_fatal
        if code in _FATAL_PRODUCE or (epoch_is_fatal and code in _FENCED):
            self._ruin(code)

    def _failed(self, api: ApiKey, code: ErrorCode | None) -> None:
        """Handle a call that failed."""
        self.error = code or ErrorCode.request_timed_out
        if code is None or code in _NEEDS_BUMP:
            self._bump = not self.is_v2
        if code is None or code in _ABORTABLE_CALL:
            return
        is_known = code is ErrorCode.unknown_server_error or self.context.may_lack(code)
        if code not in _FATAL_CALL and not is_known:
            self.context.stuck(f"{api.name} answered {code.name}")
        self._ruin(code)

    def _ruin(self, code: ErrorCode | None) -> None:
        """Fail the instance for good."""
        if not (self.is_fatal or code is None or self.context.may_lack(code)):
            self.context.record(ProducerFenced, self.transactional_id, code.name)
        self.is_fatal = True
        self.error = self.error or code or ErrorCode.request_timed_out

    def _tell(self, commit: bool) -> None:
        if self._open:
            self.context.record(TransactionEnded, self.transaction, commit)
        self._open = False

    def _tell_unknown(self, error: str) -> None:
        if self._open:
            self.context.record(TransactionUnknown, self.transaction, error)
        self._open = False

    # --- calls ------------------------------------------------------------------------

    def _at_most(self, api: ApiKey) -> int | None:
        return None if self.is_v2 else JAVA_WITHOUT_TV2.get(api)

    async def _call(
        self,
        api: ApiKey,
        request: RequestFor[ResponseT],
        error_of: Callable[[ResponseT], ErrorCode],
        time_s: float | None = None,
    ) -> CallOutcome[ResponseT]:
        return await call_coordinator(
            self.context,
            self.wire,
            TRANSACTION,
            self.transactional_id,
            api,
            request,
            error_of,
            time_s=self._call_s if time_s is None else time_s,
            at_most=self._at_most(api),
        )


def _name(code: ErrorCode | None) -> str:
    return "out of time" if code is None else code.name


def _first(errors: Sequence[tuple[TopicPartition, ErrorCode]]) -> ErrorCode:
    """Return the most specific error: a final one, not one that another partition caused."""
    codes = [code for _at, code in errors]
    telling = [code for code in codes if code is not ErrorCode.operation_not_attempted] or codes
    final = [code for code in telling if not code.retriable] or telling
    return final[0] if final else ErrorCode.none


def _first_of_partitions(answer: AddPartitionsToTxnResponse) -> ErrorCode:
    return _first(requests.add_partitions_errors(answer))
