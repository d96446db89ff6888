"""Measures each request of a broker with quotas, and throttles clients that are over theirs.

As in Kafka (KIP-219) a request is served first and answered at once; the response says for how long
the client is throttled, and for that time its connection is not read. What brokers ask of each
other, and what comes before a client is known, is not measured.

A Fetch is different from Kafka's, which reads the records, counts them, and throws them away if the
client is over its quota: here the quota is asked first, so nothing is read in vain, and what was
sent counts for the next one. Both answer without records, and the session goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.broker.apis.fetch_incremental import kind_of
from oncelog.broker.net.dispatch import Find
from oncelog.broker.net.request import Api, Buffers, Request
from oncelog.broker.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchContext
from oncelog.broker.quotas.mutations import MUTATIONS, mutate
from oncelog.core.pending import Pending, after
from oncelog.protocol.api import PRIVATE, ApiKey
from oncelog.protocol.fetch import FetchRequest, encode_fetch_response
from oncelog.protocol.throttled import throttled_fetch, throttled_produce
from oncelog.security.quotas import Quotas

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["Throttle"]

_ADDED_BY_BROKERS_SINCE: Final = 4
"""AddPartitionsToTxn from this version on is what brokers ask (KIP-890)."""

_UNMEASURED: Final = PRIVATE | {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.WRITE_TXN_MARKERS,
}

_THROTTLE_MS_MAX: Final = 2**31 - 1


class Throttle:
    """Measures the requests of a broker with quotas.

    `stopwatch` returns seconds, `monotonic_ms` milliseconds, of clocks that never jump.
    """

    def __init__(
        self,
        quotas: Quotas,
        stopwatch: Callable[[], float],
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._stopwatch = stopwatch
        self._monotonic_ms = monotonic_ms
        self._starting: _Use | None = None
        """Of the request that is being started."""

    def measuring(self, find: Find) -> Find:
        """Return what finds handlers that measure (`Layer.QUOTA`)."""

        @cache
        def measured(key: ApiKey) -> Api | None:
            api = find(key)
            if api is None or key in _UNMEASURED:
                return api
            return api._replace(handle=partial(self._handle, api))

        return measured

    def asking(self, find: Find) -> Find:
        """Return what finds handlers that ask before they act (`Layer.ACTION_QUOTA`)."""

        @cache
        def asked(key: ApiKey) -> Api | None:
            api = find(key)
            if api is not None and key is ApiKey.FETCH:
                return api._replace(handle=partial(self._fetch, api))
            if api is not None and key in MUTATIONS:
                return api._replace(handle=partial(self._mutate, api))
            return api

        return asked

    def _handle(self, api: Api, context: Context, request: Request[Any]) -> object:
        if api.key is ApiKey.ADD_PARTITIONS_TO_TXN and request.version >= _ADDED_BY_BROKERS_SINCE:
            return api.handle(context, request)
        use = self._starting = _Use(len(request.body) if api.key is ApiKey.PRODUCE else 0)
        return self._measured(request, partial(api.handle, context, request), use)

    def _fetch(
        self, api: Api, context: Context, request: Request[memoryview], look: _Look | None = None
    ) -> object:
        use = self._starting
        assert use is not None

        def bounded(fetch: FetchRequest, session: FetchContext | None) -> object:
            if fetch.replica_epoch >= 0:
                use.is_measured = False
                return None if look is None else look(fetch, session)
            found = self._fetch_limits(request)
            if found is not None:
                use.throttle_ms, bytes_max = found
                if use.throttle_ms:
                    return _Nothing(request, fetch)
                fetch = fetch._replace(max_bytes=min(fetch.max_bytes, bytes_max))
            reading = None if look is None else look(fetch, session)
            return reading or kind_of(session)(context, request, fetch, session)

        return api.handle(context, request, bounded)  # type: ignore[call-arg]

    def _mutate(self, api: Api, context: Context, request: Request[Any]) -> object:
        use = self._starting
        assert use is not None

        def charge(partitions_count: int, is_strict: bool) -> int:
            throttle_ms = self._quotas.mutated(
                *_client(request), partitions_count, self._monotonic_ms(), is_strict=is_strict
            )
            use.throttle_ms = max(use.throttle_ms, throttle_ms)
            return throttle_ms

        return mutate(api, context, request, charge)

    # ---- measuring ----

    def _measured(self, request: Request[Any], work: Callable[[], object], use: _Use) -> object:
        begun_s = self._stopwatch()
        value = work()
        while type(value) is Pending and value.done:
            value = value.response()
        use.seconds += self._stopwatch() - begun_s
        if isinstance(value, Pending):
            return after(value, partial(self._measured, request, value.response, use))
        if isinstance(value, Coroutine):
            return self._awaited(request, value, use)
        return self._ended(request, value, use)

    async def _awaited(
        self, request: Request[Any], work: Coroutine[Any, Any, object], use: _Use
    ) -> object:
        value = await _Timed(work, self._stopwatch, use)
        return value if value is None else self._measured(request, lambda: value, use)

    def _ended(self, request: Request[Any], value: object, use: _Use) -> object:
        """Count a request; return its response, with the time if its client is throttled."""
        if not use.is_measured:
            return value
        throttle_ms = self._charge(request, use, value)
        if not throttle_ms:
            return value
        request.connection.mute(throttle_ms)
        request.meter.throttled_count += 1
        request.meter.throttle_ms += throttle_ms
        return with_throttle(request, value, throttle_ms)

    # ---- quotas ----

    def _fetch_limits(self, request: Request[Any]) -> tuple[int, int] | None:
        """Return how long a client has to wait, and how many bytes it may get; None: no quota."""
        user, client_id = _client(request)
        now_ms = self._monotonic_ms()
        bytes_max = self._quotas.fetch_bytes_max(user, client_id, now_ms)
        if bytes_max is None:
            return None
        return self._quotas.fetch_wait_ms(user, client_id, now_ms), max(1, int(bytes_max))

    def _charge(self, request: Request[Any], use: _Use, reply: object) -> int:
        """Count what a request used; returns for how long its client is throttled."""
        user, client_id = _client(request)
        now_ms = self._monotonic_ms()
        throttle_ms = self._quotas.worked(user, client_id, use.seconds, now_ms)
        if request.api is ApiKey.PRODUCE:
            throttle_ms = max(
                throttle_ms, self._quotas.produced(user, client_id, use.byte_count, now_ms)
            )
        elif request.api is ApiKey.FETCH and isinstance(reply, Sequence) and not use.throttle_ms:
            size = sum(map(len, reply))
            self._quotas.fetched(user, client_id, size, now_ms)
        return min(max(throttle_ms, use.throttle_ms), _THROTTLE_MS_MAX)


_Look = Callable[[FetchRequest, "FetchContext | None"], object]


def _client(request: Request[Any]) -> tuple[str, str]:
    """Return whose quota a request is under: its user and client id."""
    return request.connection.principal, request.client_id


class _Use:
    """What one request uses, until its response is there."""

    __slots__ = ("byte_count", "is_measured", "seconds", "throttle_ms")

    def __init__(self, byte_count: int) -> None:
        self.byte_count = byte_count
        self.seconds = 0.0
        self.throttle_ms = 0
        """For how long it was found to be over a quota before it was served."""
        self.is_measured = True


class _Timed:
    """Awaits a coroutine, and counts the time in which it runs, not that in which it waits."""

    __slots__ = ("_stopwatch", "_use", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, object], stopwatch: Callable[[], float], use: _Use
    ) -> None:
        self._work = work
        self._stopwatch = stopwatch
        self._use = use

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            begun_s = self._stopwatch()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._use.seconds += self._stopwatch() - begun_s
            try:
                step = partial(self._work.send, (yield waited_for))
            except GeneratorExit:
                self._work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's, as in `yield from`
                step = partial(self._work.throw, error)


class _Nothing:
    """What a throttled client's Fetch reads; see `Reading`."""

    cold: Sequence[object] = ()
    is_enough = True

    def __init__(self, request: Request[memoryview], fetch: FetchRequest) -> None:
        self._request = request
        self._session_id = fetch.session_id
        if fetch.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # There is no session yet: as in Kafka the client asks for all partitions again.
            self._session_id = 0

    def read(self) -> None:
        """Read nothing."""

    def encode(self) -> Buffers:
        """Return a response without any partition."""
        request = self._request
        return encode_fetch_response(
            request.version, request.correlation_id, [], session_id=self._session_id
        )


def with_throttle(request: Request[Any], value: Any, throttle_ms: int) -> object:
    """Return a response with the time for which its client is throttled."""
    if value is None:
        return None
    if request.api is ApiKey.PRODUCE:
        return throttled_produce(value, request.version, throttle_ms)
    if request.api is ApiKey.FETCH:
        return throttled_fetch(value, request.version, throttle_ms)
    if hasattr(value, "throttle_time_ms"):
        return replace(value, throttle_time_ms=throttle_ms)
    return value
