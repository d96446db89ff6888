"""Judges every answer that one transactional producer gets while impostors misuse its id.

The producer is a correct client that no other client disturbs: its transactional id, its group and
its partitions are its own, its timeouts are longer than any fault. So it may never
fail (`strict`). Beside it the same process sends what no stock client sends, on connections of its
own and in any version: requests with older, newer and foreign ids, ends that were decided long ago,
duplicates of what the producer has sent, gaps in its sequences. Each is refused, or repeats an
answer that was given before, and changes nothing. What coordinators say about the producer is
compared with what it did.

Parameters: `topics`, `strict` (False), `id_prefix` (""), those of `producer` and `transactional`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchResponse
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.impostor import Impostor
from oncelog.simulation.peers.producer import BatchMaker
from oncelog.simulation.peers.transactional import Transactional
from oncelog.simulation.peers.wire import GROUP, TRANSACTION, LostError

__all__ = ["run"]

_DEFAULTS: Final = {
    "late": 0.0,
    "impatience": 0.0,
    "transaction_timeout_ms": 600_000,
    "call_timeout_ms": 120_000,
    "delivery_timeout_ms": 120_000,
    "keeps_requests": True,
}
_ODD_COUNT_MAX: Final = 4
_ENDED: Final = {
    True: frozenset({"Empty", "PrepareCommit", "CompleteCommit"}),
    False: frozenset({"Empty", "PrepareAbort", "CompleteAbort"}),
}
"""States after a commit and after an abort. A repeated InitProducerId leads to Empty."""


async def run(context: ClientContext) -> None:
    """Run transactions until told to stop, then one more."""
    context = context.with_defaults(_DEFAULTS)
    incarnation = 0
    is_last = False
    while not is_last:
        name = context.name if incarnation == 0 else f"{context.name}.{incarnation}"
        life = _ExactLife(context.named(name))
        await life.live()
        is_last = context.stopping() and not life.failed
        life.close()
        incarnation += 1
        await context.pause(1, 100)
    context.progress("settled")


class _ExactLife:
    """One producer, from its start until it fails or has to stop."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.failed = False
        self._is_alone = context.name.split(".")[1:] in ([], ["0"])
        """Whether no former instance has sent a request that may still arrive."""
        root = context.name.partition(".")[0]
        self._id = f"{context.get('id_prefix', '')}exact-{root}"
        self._group = f"group-of-{self._id}"
        self.producer = Transactional(context, self._id)
        self._maker = BatchMaker(context, self.producer.wire)
        self._impostor = Impostor(context, self.producer, self._group)
        self._committed: dict[TopicPartition, int] = {}
        """The group's offsets that this life has committed."""
        self._offset = 0

    def close(self) -> None:
        """Close all connections."""
        self.producer.give_up("process ended")
        self._impostor.close()

    async def live(self) -> None:
        """Run transactions; return when one failed, or at the end."""
        context = self._context
        if not await self.producer.start():
            self._fail("the start")
            return
        # A delayed InitProducerId would start another instance.
        self._is_alone = self._is_alone and not self.producer.wire.lost_count
        while True:
            is_last = context.stopping()
            await self._transaction()
            if self.failed or is_last:
                return
            await context.think()

    def _fail(self, what: str) -> None:
        """The producer got an error that nothing explains, if faults cannot."""
        self.failed = True
        error = self.producer.error
        # Under TV1 a delayed request may end the next transaction, as in Apache Kafka.
        is_certain = self.producer.is_v2 or not self.producer.wire.lost_count
        if self._context.get("strict", False) and is_certain and self._is_alone:
            name = "no error" if error is None else error.name
            self._context.stuck(f"the only producer of {self._id} got {name} at {what}")

    # --- a transaction ----------------------------------------------------------------

    async def _transaction(self) -> None:
        context, producer = self._context, self.producer
        producer.begin()
        impostor = self._impostor
        impostor.touched.clear()
        pending: dict[TopicPartition, int] = {}
        for _ in range(context.rng.choice((0, 1, 1, 2, 4))):
            if context.chance(0.2):
                pending |= await self._send_offsets()
            else:
                await self._send()
            if producer.error is not None:
                self._fail("a send")
                return
            await self._be_odd(self._describe_open)
        await producer.flush()
        if producer.error is not None:
            self._fail("a flush")
            return
        await self._be_odd(self._describe_open)
        commit = context.chance(0.6)
        if not await self._end(commit):
            return
        if commit and pending:
            self._committed |= pending
        await self._be_odd(self._describe_ended)

    async def _end(self, commit: bool) -> bool:
        producer = self.producer
        epoch, was_begun = producer.sender.epoch, producer.is_begun
        if commit:
            await producer.commit()
        else:
            await producer.abort()
        if producer.error is not None or producer.is_fatal:
            self._fail("a commit" if commit else "an abort")
            return False
        if was_begun:
            self._impostor.ended(epoch, commit)
        return True

    async def _send(self) -> None:
        targets = await self._maker.targets()
        if not targets:
            await self._context.back_off()
            return
        number = self.producer.transaction
        await self.producer.send([self._maker.batch(at, number) for at in targets])
        self._impostor.touched.update(targets)
        if self._context.chance(0.5):
            await self.producer.flush()

    async def _send_offsets(self) -> dict[TopicPartition, int]:
        known = self.producer.wire.partitions(self._maker.topics)
        if not known:
            return {}
        self._offset += self._context.rng.randint(1, 5)
        offsets = {self._context.rng.choice(known): self._offset}
        await self.producer.send_offsets(self._group, offsets)
        return offsets

    async def _be_odd(self, describe: Callable[[], Awaitable[None]]) -> None:
        """Misuse the id a few times, then compare what the coordinators say."""
        for _ in range(self._context.rng.randint(0, _ODD_COUNT_MAX)):
            await self._impostor.act()
        if self._context.chance(0.3):
            await describe()
        if self._context.chance(0.2):
            await self._look_at_offsets()

    # --- what the coordinators say ----------------------------------------------------

    def _expect(self, holds: bool, what: str) -> None:
        if not holds and self._context.get("strict", False):
            self._context.stuck(what)

    async def _describe(self) -> Any:
        to = await self.producer.wire.coordinator(TRANSACTION, self._id)
        if to is None:
            return None
        request = DescribeTransactionsRequest(transactional_ids=(self._id,))
        try:
            answer = await self.producer.wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, to=to)
        except LostError:
            self.producer.wire.forget_coordinator(TRANSACTION, self._id)
            return None
        (state,) = answer.transaction_states
        return state if state.error_code is ErrorCode.none else None

    async def _describe_open(self) -> None:
        """While records are in a transaction, it is Ongoing, with their partitions."""
        producer = self.producer
        if not producer.sender.is_idle or not (state := await self._describe()):
            return
        named = {TopicPartition(t.topic, p) for t in state.topics for p in t.partitions}
        ids = (state.producer_id, state.producer_epoch)
        mine = (producer.sender.producer_id, producer.sender.epoch)
        touched = self._impostor.touched
        is_open = state.transaction_state == "Ongoing"
        self._expect(
            (is_open and ids == mine and touched <= named) or not touched,
            f"DescribeTransactions of {mine} with {sorted(touched)} gave {state}",
        )

    async def _describe_ended(self) -> None:
        """After an end nothing is open, and the decision is the one asked for."""
        state, last = await self._describe(), self._impostor.last_end
        self._expect(
            not state or last is None or state.transaction_state in _ENDED[last[1]],
            f"DescribeTransactions after {last} gave {state}",
        )

    async def _look_at_offsets(self) -> None:
        """The group's offsets are those of its last committed transaction."""
        committed = self._committed
        wire = self.producer.wire
        if not committed or (to := await wire.coordinator(GROUP, self._group)) is None:
            return
        request = requests.offset_fetch_request(self._group, committed, True)
        try:
            answer: OffsetFetchResponse = await wire.ask(
                ApiKey.OFFSET_FETCH, request, to=to, at_most=requests.OFFSETS_BY_NAME_MAX
            )
        except LostError:
            wire.forget_coordinator(GROUP, self._group)
            return
        code, found = requests.offsets_of(answer)
        offsets = {place: at.offset for place, at in found.items()}
        self._expect(
            code is not ErrorCode.none or offsets == committed,
            f"OffsetFetch of {self._group} gave {offsets}, committed are {committed}",
        )
