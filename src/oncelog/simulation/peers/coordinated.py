"""Uses transactional ids of its own, and compares every answer with what must be true of them.

No other client has these ids or writes to their topic. No record is sent: partitions are added, and
transactions end, time out or are taken over. An id whose last request was not answered is left
alone from then on, and another one takes its place. Answers are judged where power takes nothing
and no clock jumps (`strict`).

Parameters: `topic`, `strict` (False), `sweep_ms` (500), `timeouts_ms`, `think_ms`,
`id_prefix` ("").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.simulation.context import ClientContext
from oncelog.simulation.duties.moves import EPOCHS_USED_UP
from oncelog.simulation.duties.worn import WORN, first_epoch
from oncelog.simulation.history import ProducerInitialized
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.identity import call_coordinator
from oncelog.simulation.peers.wire import TRANSACTION, LostError, PeerWire

__all__ = ["run"]

_DEFAULTS: Final = {"late": 0.0, "impatience": 0.0, "request_timeout_ms": 120_000}
_FLAVOR: Final = replace(FLAVORS["java"], at_most=MappingProxyType({}))
"""All versions, also those that only brokers send."""
_IDS_COUNT: Final = 3
_CALL_S: Final = 60.0
_SLACK_MS: Final = 1_500.0
"""So much later than timeout and sweep an abort may be seen, by a client that asks every 50 ms."""
_TV1_MAX: Final = {ApiKey.END_TXN: 4}
_FENCED: Final = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_EMPTY, _ONGOING = "Empty", "Ongoing"
_AFTER: Final = {True: "CompleteCommit", False: "CompleteAbort"}
_ENDING: Final = {"PrepareCommit": "CompleteCommit", "PrepareAbort": "CompleteAbort"}


async def run(context: ClientContext) -> None:
    """Use the ids until told to stop."""
    owner = _OwnerOfIds(context.with_defaults(_DEFAULTS))
    while not context.stopping():
        await owner.act()
        await context.think()
    owner.close()
    context.progress("settled")


@dataclass(slots=True)
class _Id:
    """What is true of one transactional id."""

    name: str
    producer_id: int = -1
    epoch: int = -1
    state: str = ""
    """As it is told; "" before the first InitProducerId."""
    timeout_ms: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    begun_ms: tuple[float, float] = (0.0, 0.0)
    """The open transaction began between these times of the client's clock."""
    ended: tuple[int, int, bool] | None = None
    """Producer id, epoch and outcome of the last EndTxn under TV2."""
    is_lost: bool = False
    """Whether a request was not answered."""

    def follows(self, ids: tuple[int, int], *, at_once: bool = False) -> bool:
        """Whether these may be the next producer id and epoch; `at_once`: the very next.

        After the last epoch there is another producer id, with epoch 0. An abort that fences uses
        the last epoch.
        """
        if ids[0] == self.producer_id:
            return ids[1] == self.epoch + 1 if at_once else ids[1] > self.epoch
        is_used_up = self.epoch >= (EPOCHS_USED_UP if at_once else EPOCHS_USED_UP - 1)
        return ids[0] > self.producer_id and is_used_up and 0 <= ids[1] <= (not at_once)


class _OwnerOfIds:
    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._wire = PeerWire(context, _FLAVOR)
        self._topic = str(context.get("topic", "owned"))
        self._prefix = f"{context.get('id_prefix', '')}own-{context.name}-"
        self._ids: list[_Id] = []
        self._count = 0
        self._acts: tuple[Callable[[_Id], Awaitable[None]], ...] = (
            *(self._begin, self._begin, self._add, self._end, self._end, self._end),
            *(
                self._init,
                self._outlast,
                self._end_nothing,
                self._describe,
                self._describe,
                self._list,
                self._list,
            ),
            *(self._verify, self._find, self._misuse, self._come_late),
        )

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    async def act(self) -> None:
        """Do one thing with one id."""
        self._ids = [each for each in self._ids if not each.is_lost]
        while len(self._ids) < _IDS_COUNT:
            name = f"{self._prefix}{self._count}"
            self._count += 1
            self._ids.append(_Id(name))
        one = self._context.rng.choice(self._ids)
        if not one.state:
            await self._init(one)
        else:
            await self._context.rng.choice(self._acts)(one)

    # --- asking -----------------------------------------------------------------------

    def _now_ms(self) -> float:
        return self._context.clock.monotonic_ms()

    def _expect(self, holds: bool, what: str) -> None:
        if not holds and self._context.get("strict", False):
            self._context.stuck(what)

    async def _call(
        self, one: _Id, api: ApiKey, request: RequestFor[Any], error_of: Any, at_most: int | None
    ) -> tuple[ErrorCode | None, Any]:
        """Call the coordinator; None and a lost id if a try may have taken effect unheard."""
        outcome = await call_coordinator(
            self._context,
            self._wire,
            TRANSACTION,
            one.name,
            api,
            request,
            error_of,
            time_s=_CALL_S,
            at_most=at_most,
        )
        if outcome.code is None or outcome.perhaps:
            one.is_lost = True
            return None, None
        return outcome.code, outcome.answer

    async def _ask(self, request: RequestFor[Any], api: ApiKey) -> Any:
        """Ask the only broker something that changes nothing; None without an answer."""
        try:
            return await self._wire.ask(api, request)
        except LostError:
            return None

    # --- a transaction ----------------------------------------------------------------

    async def _init(self, one: _Id, *, is_fenced: bool = False) -> None:
        """Take the id over, or ask for its next epoch (KIP-360), unless that was fenced."""
        timeout_ms = self._context.rng.choice(self._context.get("timeouts_ms", (400, 1_500)))
        expected = (-1, -1)
        if one.state and not is_fenced and self._context.chance(0.3):
            expected = one.producer_id, one.epoch
        if one.state == _ONGOING and self._may_time_out(one):
            expected = (-1, -1)
        request = requests.init_producer_id_request(one.name, timeout_ms, *expected)
        code, answer = await self._call(
            one, ApiKey.INIT_PRODUCER_ID, request, lambda a: a.error_code, None
        )
        if code is None:
            return
        ids = int(answer.producer_id), int(answer.producer_epoch)
        is_first = ids[0] >= 0 and ids[1] == first_epoch(one.name)
        self._expect(
            code is ErrorCode.none and (one.follows(ids) if one.state else is_first),
            f"InitProducerId of {one} with {expected} gave {code.name} {ids}",
        )
        self._context.record(ProducerInitialized, one.name, *ids)
        one.producer_id, one.epoch = ids
        one.state, one.timeout_ms, one.ended = _EMPTY, timeout_ms, None
        one.partitions = set()

    async def _begin(self, one: _Id) -> None:
        if one.state != _ONGOING:
            await self._add(one)

    async def _add(self, one: _Id) -> None:
        """Add some partitions, now and then many."""
        if self._may_time_out(one) or not await self._wire.refresh([self._topic]):
            return
        known = self._wire.partitions([self._topic])
        count = len(known) if self._context.chance(0.3) else self._context.rng.randint(0, 2)
        chosen = self._context.rng.sample(known, min(count, len(known)))
        if not chosen:
            return
        asked_ms = self._now_ms()
        request = requests.add_partitions_request(one.name, one.producer_id, one.epoch, chosen)
        code, _ = await self._call(one, ApiKey.ADD_PARTITIONS_TO_TXN, request, _added, 3)
        if code is None or self._may_time_out(one):
            one.is_lost = True
            return
        self._expect(code is ErrorCode.none, f"AddPartitionsToTxn of {one} gave {code.name}")
        if one.state != _ONGOING:
            one.state, one.begun_ms = _ONGOING, (asked_ms, self._now_ms())
        one.partitions.update(chosen)

    def _may_time_out(self, one: _Id) -> bool:
        """Whether its transaction may be aborted before the next request is decided."""
        age_ms = self._now_ms() - one.begun_ms[0]
        return one.state == _ONGOING and age_ms > 0.99 * one.timeout_ms

    async def _end(self, one: _Id) -> None:
        """Commit or abort, as a client of TV1 or of TV2."""
        if one.state != _ONGOING or self._may_time_out(one):
            return
        commit = self._context.chance(0.6)
        is_tv2 = self._context.chance(0.6)
        ids = one.producer_id, one.epoch
        request = requests.end_txn_request(one.name, *ids, commit)
        at_most = None if is_tv2 else _TV1_MAX[ApiKey.END_TXN]
        code, answer = await self._call(
            one, ApiKey.END_TXN, request, lambda a: a.error_code, at_most
        )
        if code is None or self._may_time_out(one):
            one.is_lost = True
            return
        self._expect(code is ErrorCode.none, f"EndTxn of {one} gave {code.name}")
        told = int(answer.producer_id), int(answer.producer_epoch)
        if told[0] >= 0:
            self._expect(one.follows(told, at_once=True), f"EndTxn of {ids} gave {told}")
            one.ended = *ids, commit
            one.producer_id, one.epoch = told
        one.state, one.partitions = _AFTER[commit], set()

    async def _end_nothing(self, one: _Id) -> None:
        """Under TV2 an abort without a transaction bumps the epoch; a commit is refused."""
        if one.state == _ONGOING:
            return
        commit = self._context.chance(0.3)
        ids = one.producer_id, one.epoch
        request = requests.end_txn_request(one.name, *ids, commit)
        code, answer = await self._call(one, ApiKey.END_TXN, request, lambda a: a.error_code, None)
        if code is None:
            return
        told = int(answer.producer_id), int(answer.producer_epoch)
        if commit:
            self._expect(code is ErrorCode.invalid_txn_state, f"EndTxn of {one} gave {code.name}")
            return
        is_right = code is ErrorCode.none and one.follows(told, at_once=True)
        self._expect(is_right, f"EndTxn of {one} gave {code.name} {told}")
        one.ended, one.state = (*ids, False), _AFTER[False]
        one.producer_id, one.epoch = told

    async def _outlast(self, one: _Id) -> None:
        """Let a transaction time out: it is aborted in time, and its producer fenced."""
        if one.state != _ONGOING:
            return
        due_ms = one.begun_ms[1] + one.timeout_ms + float(self._context.get("sweep_ms", 500))
        while True:
            state = await self._described(one)
            if state is None:
                return
            is_open = state.transaction_state == _ONGOING
            if not is_open:
                too_early = self._now_ms() - one.begun_ms[0] < 0.99 * one.timeout_ms
                self._expect(not too_early, f"{one} was aborted before its time: {state}")
                self._expect(
                    state.transaction_state in ("PrepareAbort", "CompleteAbort")
                    and one.follows((state.producer_id, state.producer_epoch), at_once=True),
                    f"{one} timed out, and is {state}",
                )
                break
            if self._now_ms() > due_ms + 20 * _SLACK_MS:
                self._expect(False, f"{one} is open long after its timeout: {state}")
                break
            await self._context.clock.sleep(50)
        request = requests.end_txn_request(one.name, one.producer_id, one.epoch, True)
        code, _ = await self._call(one, ApiKey.END_TXN, request, lambda a: a.error_code, 4)
        self._expect(_is_fenced(one, code), f"EndTxn of {one}, timed out, gave {code}")
        if not one.is_lost:
            one.state, one.ended = _AFTER[False], None
            await self._init(one, is_fenced=True)

    # --- what is told -----------------------------------------------------------------

    async def _described(self, one: _Id) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=(one.name,))
        answer = await self._ask(request, ApiKey.DESCRIBE_TRANSACTIONS)
        if answer is None:
            return None
        (state,) = answer.transaction_states
        return state if state.error_code is ErrorCode.none else None

    async def _describe(self, one: _Id) -> None:
        """Each field is what was asked for; the times are those of the requests."""
        asked_ms = self._now_ms()
        state = await self._described(one)
        if state is None or self._may_time_out(one):
            return
        named = {TopicPartition(t.topic, p) for t in state.topics for p in t.partitions}
        is_ending = state.transaction_state in _ENDING
        told = (
            _ENDING.get(state.transaction_state, state.transaction_state),
            *(state.transaction_timeout_ms, state.producer_id, state.producer_epoch),
        )
        wanted = (one.state, one.timeout_ms, one.producer_id, one.epoch)
        self._expect(
            told == wanted and (is_ending or named == one.partitions),
            f"DescribeTransactions of {one} gave {state}",
        )
        if one.state == _ONGOING:
            age_ms = asked_ms - one.begun_ms[1]
            self._expect(age_ms <= one.timeout_ms, f"{one} is open for {age_ms} ms")

    async def _list(self, one: _Id) -> None:
        """The ids that pass the filters are listed, and no others."""
        pattern = f"{self._prefix}.*"
        rng = self._context.rng
        known = [each for each in self._ids if each.state and not each.is_lost]
        states: tuple[str, ...] = rng.choice(((), (), (_ONGOING,), (_EMPTY, "Nonsense")))
        ids = (one.producer_id,) if rng.random() < 0.3 else ()
        duration_ms = 3_600_000 if rng.random() < 0.2 else -1
        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=ids,
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        if any(map(self._may_time_out, known)):
            return
        answer = await self._ask(request, ApiKey.LIST_TRANSACTIONS)
        if answer is None or answer.error_code is not ErrorCode.none:
            return
        if any(map(self._may_time_out, known)):
            return
        mine = {each.name for each in known}
        told = {
            each.transactional_id: (
                each.producer_id,
                _ENDING.get(each.transaction_state, each.transaction_state),
            )
            for each in answer.transaction_states
            if each.transactional_id in mine
        }
        wanted = {
            each.name: (each.producer_id, each.state)
            for each in known
            if (not states or each.state in states)
            and (not ids or each.producer_id in ids)
            and (duration_ms < 0 or each.state == _EMPTY)
        }
        if duration_ms >= 0:
            # Ids at rest have no duration that clients could know.
            told = {name: each for name, each in told.items() if each[1] in (_EMPTY, _ONGOING)}
        strange = [e.transactional_id for e in answer.transaction_states]
        strange = [name for name in strange if not name.startswith(pattern[:-2])]
        unknown = {name for name in states if name == "Nonsense"}
        self._expect(
            told == wanted and not strange and set(answer.unknown_state_filters) == unknown,
            f"ListTransactions by {request} gave {answer}, {wanted} are there",
        )

    async def _verify(self, one: _Id) -> None:
        """Ask as a partition's leader which partitions are in transactions, of several ids."""
        if not await self._wire.refresh([self._topic]):
            return
        asked = [each for each in self._ids if each.state and not self._may_time_out(each)]
        places = self._wire.partitions([self._topic])[:4]
        if not asked or not places:
            return
        single = [
            requests.add_partitions_request(e.name, e.producer_id, e.epoch, places).transactions[0]
            for e in asked
        ]
        request = requests.add_partitions_request("", 0, 0, places)
        request = replace(request, transactions=tuple(replace(t, verify_only=True) for t in single))
        answer = await self._ask(request, ApiKey.ADD_PARTITIONS_TO_TXN)
        if answer is None or answer.error_code is not ErrorCode.none:
            return
        told = {
            result.transactional_id: {
                TopicPartition(topic.name, p.partition_index): p.partition_error_code
                for topic in result.topic_results
                for p in topic.results_by_partition
            }
            for result in answer.results_by_transaction
        }
        for each in asked:
            if self._may_time_out(each):
                continue
            for place in places:
                code = told.get(each.name, {}).get(place)
                is_in = code is ErrorCode.none
                is_retried = code is not None and code.retriable
                self._expect(
                    is_retried or is_in == (each.state == _ONGOING and place in each.partitions),
                    f"a verification of {place} in {each} gave {code}",
                )

    async def _find(self, one: _Id) -> None:
        """FindCoordinator names each id once."""
        names = tuple(each.name for each in self._ids)
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=names)
        answer = await self._ask(request, ApiKey.FIND_COORDINATOR)
        if answer is None:
            return
        found = sorted(each.key for each in answer.coordinators)
        self._expect(found == sorted(names), f"FindCoordinator of {names} gave {found}")

    # --- misuse -----------------------------------------------------------------------

    async def _misuse(self, one: _Id) -> None:
        """InitProducerIds that are refused, whatever the state of the id."""
        timeout_ms, producer_id, epoch, wanted = self._context.rng.choice(
            (
                (0, -1, -1, ErrorCode.invalid_transaction_timeout),
                (900_001, -1, -1, ErrorCode.invalid_transaction_timeout),
                (1_000, -1, 3, ErrorCode.invalid_request),
                (1_000, one.producer_id, -1, ErrorCode.invalid_request),
            )
        )
        request = requests.init_producer_id_request(one.name, timeout_ms, producer_id, epoch)
        answer = await self._ask(request, ApiKey.INIT_PRODUCER_ID)
        if answer is not None and not answer.error_code.retriable:
            self._expect(answer.error_code is wanted, f"{request} gave {answer.error_code.name}")

    async def _come_late(self, one: _Id) -> None:
        """Send an end and an add of a former epoch again: nothing changes (INV-5)."""
        if one.ended is None or self._may_time_out(one):
            return
        producer_id, epoch, commit = one.ended
        late = commit if self._context.chance(0.6) else not commit
        request = requests.end_txn_request(one.name, producer_id, epoch, late)
        code, answer = await self._call(one, ApiKey.END_TXN, request, lambda a: a.error_code, None)
        if code is None:
            one.is_lost = False
            return
        is_repeated = late == commit and one.state == _AFTER[commit]
        self._expect(
            _is_fenced(one, code)
            or code is ErrorCode.invalid_txn_state
            or (code is ErrorCode.none and is_repeated),
            f"a late EndTxn({late}) of epoch {epoch} of {one} gave {code.name}",
        )
        if code is ErrorCode.none:
            told = int(answer.producer_id), int(answer.producer_epoch)
            self._expect(told == (one.producer_id, one.epoch), f"it gave {told} for {one}")
        places = [TopicPartition(self._topic, 0)]
        add = requests.add_partitions_request(one.name, producer_id, epoch, places)
        code, _ = await self._call(one, ApiKey.ADD_PARTITIONS_TO_TXN, add, _added, 3)
        one.is_lost = False
        self._expect(
            _is_fenced(one, code),
            f"a late AddPartitionsToTxn of epoch {epoch} of {one} gave {code}",
        )


def _added(answer: Any) -> ErrorCode:
    failed: Iterable[tuple[TopicPartition, ErrorCode]] = requests.add_partitions_errors(answer)
    return next((code for _, code in failed), ErrorCode.none)


def _is_fenced(one: _Id, code: ErrorCode | None) -> bool:
    """Whether the answer to a former epoch is the one that is due, if there is one."""
    is_changed = code is ErrorCode.invalid_producer_id_mapping and one.name.startswith(WORN)
    return code is None or code in _FENCED or is_changed
