"""`Faults` injects faults into a `ControlledBroker`, at chosen moments.

Faults of requests are injected between the dispatcher and the handlers, kills at the disk, and time
at the clock (D3). While no fault is set, the dispatcher calls the handlers directly.

The methods may be called from any thread, and from a coroutine: they wait for the broker's own
event loop, which runs in another thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from oncelog.broker.apis.refusals import CAN_FAIL
from oncelog.broker.net.dispatch import Find, Layer
from oncelog.broker.net.request import Api, Request
from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.core.pending import Pending, unchanged
from oncelog.group.shard import GroupCoordinatorShard
from oncelog.protocol.api import ApiKey
from oncelog.testing.disk import Buffer, ControlledDisk, Killed
from oncelog.testing.fault import ArmedFault
from oncelog.testing.moments import Moment, TransactionWrite, TransactionWriteKind, steps_of_write
from oncelog.testing.requests import (
    Action,
    RequestFault,
    delaying,
    failing,
    losing_reply,
    losing_request,
    throttling,
    until_kept,
)
from oncelog.testing.security_faults import Controlled, SecurityFaults
from oncelog.transaction.events import InitProducerId, InitProducerIdReply
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.broker.partitions.partition import Partition

__all__ = ["Faults"]

T = TypeVar("T")

BEYOND_MS = 100.0
"""How far beyond a deadline the clock is advanced: the system's clock may step back a little."""


@dataclass(frozen=True, slots=True)
class _Kill:
    """A death at a moment of a transaction; `transactional_id` None is any."""

    moment: Moment
    transactional_id: str | None
    restart: bool
    fault: ArmedFault


class Faults(SecurityFaults):
    """The faults of one broker. `broker.faults` is one of these."""

    def __init__(self, controlled: Controlled) -> None:
        super().__init__(controlled)
        self._broker: Broker | None = None
        self._disk: ControlledDisk | None = None
        self._thread_id = 0
        self._requests: list[RequestFault] = []
        self._kills: list[_Kill] = []
        self._struck: list[ArmedFault] = []
        """Kills that have occurred, until the broker serves again or stays down."""
        self._ids: dict[int, str] = {}
        """Transactional ids by producer id, from PREPARE records: a marker contains no id."""

    # ---- requests ----

    def fail(
        self,
        api: ApiKey,
        error: ErrorCode,
        *,
        nth: int = 1,
        times: int = 1,
        client_id: str | None = None,
    ) -> ArmedFault:
        """Answer the `nth` request of an API from now on by an error, and `times` - 1 after it.

        The request has no effect. `client_id` leaves the requests of other clients alone. Raises
        `ValueError` for an API whose responses have no error code here.
        """
        if api not in CAN_FAIL:
            names = ", ".join(sorted(each.title for each in CAN_FAIL))
            raise ValueError(f"{api.title} cannot be answered by an error on demand, but {names}")
        what = f"{api.title} is answered by {error.name.upper()}"
        return self._set(api, what, failing(error), nth, times, client_id)

    def delay(
        self,
        api: ApiKey,
        delay_ms: float,
        *,
        nth: int = 1,
        times: int = 1,
        client_id: str | None = None,
    ) -> ArmedFault:
        """Delay the request before it has any effect.

        Later requests of its connection wait too. `nth`, `times` and `client_id` are as in `fail`.
        """
        what = f"{api.title} waits for {delay_ms:g} ms"
        return self._set(api, what, delaying(delay_ms), nth, times, client_id)

    def lose_request(
        self, api: ApiKey, *, nth: int = 1, times: int = 1, client_id: str | None = None
    ) -> ArmedFault:
        """Drop the connection before the request has any effect."""
        what = f"{api.title} is lost before it takes effect"
        return self._set(api, what, losing_request(what), nth, times, client_id)

    def lose_reply(
        self, api: ApiKey, *, nth: int = 1, times: int = 1, client_id: str | None = None
    ) -> ArmedFault:
        """Let the request take effect, and drop the connection instead of answering it."""
        what = f"the reply to {api.title} is lost"
        return self._set(api, what, losing_reply(what), nth, times, client_id)

    def throttle(
        self,
        throttle_ms: int,
        api: ApiKey | None = None,
        *,
        nth: int = 1,
        times: int = 1,
        client_id: str | None = None,
    ) -> ArmedFault:
        """Answer a request of an API, by default of any, as one of a client over its quota.

        The response has the throttle time, and later requests of the connection wait for so long.
        """
        what = f"{'a request' if api is None else api.title} is throttled for {throttle_ms} ms"
        return self._set(api, what, throttling(throttle_ms), nth, times, client_id)

    # ---- the process ----

    def kill(
        self,
        at: Moment | None = None,
        *,
        transactional_id: str | None = None,
        nth: int = 1,
        restart: bool = True,
    ) -> ArmedFault:
        """Kill the broker at a moment of a transaction, by default now; then start it again.

        Its files are as after SIGKILL; afterwards it neither writes nor answers. It starts again on
        the same port. With `restart` false it stays down until `restart` is called.
        """
        if at is None:
            fault = ArmedFault("the broker is killed", 1, 1, lambda: None)
            self._controlled.call(lambda _: self._die(fault, restart))
            fault.wait()
            return fault
        whose = f" of {transactional_id}" if transactional_id is not None else ""
        what = f"the broker is killed {at.name.lower().replace('_', ' ')}{whose}"
        kill = _Kill(
            at, transactional_id, restart, ArmedFault(what, nth, 1, lambda: self._drop(kill))
        )
        self._do(lambda: self._kills.append(kill))
        return kill.fault

    def restart(self) -> None:
        """Start the broker again after a kill without restart."""
        self._controlled.revive()

    # ---- producers and time ----

    def fence(self, transactional_id: str) -> tuple[int, int]:
        """Take over a transactional id, as a second process with that id would.

        Its open transaction is aborted, and its producer is fenced from now on. Returns the new
        producer id and epoch. Raises `ValueError` when the id was never used.
        """

        async def take_over() -> tuple[int, int]:
            broker = self._broker
            if broker is None:
                raise RuntimeError("the broker is down: start it again first")
            event = InitProducerId(transactional_id, _known(broker, transactional_id).timeout_ms)
            value = broker.transactions.ask(transactional_id, event, unchanged, InitProducerIdReply)
            if isinstance(value, Pending):
                await until_kept(value)
                value = value.response()
            assert isinstance(value, InitProducerIdReply)
            if value.error is not ErrorCode.none:
                raise ProtocolError(value.error, f"{transactional_id} cannot be taken over")
            return value.producer_id, value.producer_epoch

        return self._controlled.run(take_over())

    def advance_clock(self, ms: float) -> None:
        """Advance the broker's clock, and run what is due by then.

        Transactions and sessions time out, ids and offsets expire, records age. The deadlines of
        requests in flight do not change.
        """
        self._controlled.call(lambda broker: self._advance(broker, ms))

    def expire_transaction(self, transactional_id: str) -> None:
        """Advance the clock beyond the timeout of an open transaction, which aborts it.

        Its producer is fenced. Everything else that is due by then happens too. Raises `ValueError`
        when no transaction of the id is open.
        """

        def expire(broker: Broker) -> None:
            found = _known(broker, transactional_id)
            if found.state is not TransactionState.ONGOING:
                raise ValueError(f"{transactional_id} has no open transaction: {found.state.label}")
            over_ms = found.start_timestamp_ms + found.timeout_ms - broker.clock.now_ms()
            interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            self._advance(broker, max(over_ms, broker.config.get_int(interval)) + BEYOND_MS)

        self._controlled.call(expire)

    def expire_sessions(self, group_id: str) -> None:
        """Advance the clock beyond the session timeout of a group's members, which removes them.

        Everything else that is due by then happens too. Raises `ValueError` for a group without
        members.
        """

        def expire(broker: Broker) -> None:
            timeouts = [
                member.session_timeout_ms
                for shard in broker.groups.shards()
                if isinstance(shard, GroupCoordinatorShard) and group_id in shard.store.groups
                for member in shard.store.groups[group_id].members.values()
            ]
            if not timeouts:
                raise ValueError(f"the group {group_id} has no members")
            self._advance(broker, max(timeouts) + BEYOND_MS)

        self._controlled.call(expire)

    def clear(self) -> None:
        """Remove every fault that has not occurred."""

        def work() -> None:
            self._requests.clear()
            self._kills.clear()
            self._logins.clear()
            self._denials.clear()

        self._do(work)
        if self._expired is not None:
            self.renew_certificate()

    # ---- in the broker's loop ----

    def attach(self, broker: Broker, disk: ControlledDisk) -> None:
        """Called when a broker has started: install its faults and end the earlier kills."""
        self._broker, self._disk = broker, disk
        self._thread_id = threading.get_ident()
        self._guard_logins(broker)
        self._install()
        self.finish_kills()

    def detach(self) -> None:
        """Called when the broker has ended."""
        self._broker = self._disk = None

    def finish_kills(self) -> None:
        """End the kills once the broker serves again, or stays down as requested."""
        struck, self._struck = self._struck, []
        for fault in struck:
            fault.finish()

    def _install(self) -> None:
        if self._broker is None or self._disk is None:
            return
        self._broker.dispatcher.wrap(
            Layer.FAULT, self._faulty if self._requests or self._denials else None
        )
        self._disk.watch = self._watch if self._kills else None

    def _faulty(self, find: Find) -> Find:
        def faulty(key: ApiKey) -> Api | None:
            api = find(key)
            concerned = self._denials or any(each.is_of(key) for each in self._requests)
            if api is None or not concerned:
                return api
            return Api(key, partial(self._handle, api), api.reads_bytes)

        return faulty

    def _handle(self, api: Api, context: object, request: Request[object]) -> object:
        for each in self._requests:
            if each.concerns(request) and each.fault.strikes():
                value = each.action(api, context, request)
                if each.fault.is_spent:
                    self._requests.remove(each)
                    self._install()
                    each.fault.finish()
                return value
        if self._denials and self._broker is not None:
            from oncelog.testing.denials import denying

            api = denying(api.key, self._broker, self._denials, self._denied)
        answer: object = api.handle(context, request)
        return answer

    def _watch(self, path: str, data: Buffer, is_coming: bool) -> None:
        """Called for every write; kill the broker at the one that a fault waits for."""
        if threading.get_ident() != self._thread_id:
            return
        for step in steps_of_write(path, bytes(data)):
            if step.kind is TransactionWriteKind.PREPARE and step.transactional_id is not None:
                self._ids[step.producer_id] = step.transactional_id
            assert self._broker is not None
            partition = self._broker.partitions.get(*step.partition)
            if partition is None or not partition.state.is_leader:
                continue  # A follower copies what another broker decides.
            for kill in self._kills:
                moment = kill.moment
                if moment.step is not step.kind or moment.is_before is not is_coming:
                    continue
                if self._is_meant(kill, step) and kill.fault.strikes():
                    self._kills.remove(kill)
                    if is_coming or len(partition.state.isr) == 1:
                        self._die_here(kill)
                    # The append under way has yet to say where the log ends, and who waits for it.
                    loop = asyncio.get_running_loop()
                    loop.call_soon(self._die_when_committed, partition, kill)
                    return

    def _die_when_committed(self, partition: Partition, kill: _Kill) -> None:
        partition.on_committed(partition.log.log_end_offset, lambda _: self._die_here(kill))

    def _die_here(self, kill: _Kill) -> NoReturn:
        self._die(kill.fault, kill.restart)
        raise Killed

    def _is_meant(self, kill: _Kill, step: TransactionWrite) -> bool:
        whose = step.transactional_id or self._ids.get(step.producer_id)
        return kill.transactional_id in (None, whose)

    def _die(self, fault: ArmedFault, restart: bool) -> None:
        assert self._broker is not None
        assert self._disk is not None
        self._struck.append(fault)
        self._controlled.dies(restart)
        self._disk.is_dead = True
        self._broker.kill()

    def _advance(self, broker: Broker, ms: float) -> None:
        self._controlled.clock.advance(ms)
        broker.transactions.clock_moved()
        broker.groups.clock_moved()

    # ---- in the test's thread ----

    def _set(
        self,
        api: ApiKey | None,
        what: str,
        action: Action,
        nth: int,
        times: int,
        client_id: str | None,
    ) -> ArmedFault:
        what = f"{what} (request {nth}{f' and {times - 1} more' if times > 1 else ''})"
        fault = ArmedFault(what, nth, times, lambda: self._drop(new))
        new = RequestFault(api, client_id, action, fault)

        def work() -> None:
            self._requests.append(new)

        self._do(work)
        return fault

    def _drop(self, gone: RequestFault | _Kill) -> None:
        def work() -> None:
            if isinstance(gone, RequestFault) and gone in self._requests:
                self._requests.remove(gone)
            if isinstance(gone, _Kill) and gone in self._kills:
                self._kills.remove(gone)

        self._do(work)

    def _do(self, work: Callable[[], None]) -> None:
        """Run `work` in the broker's event loop; if the broker is down, at its next start."""

        async def in_loop() -> None:
            work()
            self._install()

        self._controlled.run(in_loop())


def _known(broker: Broker, transactional_id: str) -> TransactionMetadata:
    for shard in broker.transactions.shards():
        if isinstance(shard, TransactionCoordinatorShard):
            found = shard.transactions.get(transactional_id)
            if found is not None:
                return found
    raise ValueError(f"no producer has used the transactional id {transactional_id}")
