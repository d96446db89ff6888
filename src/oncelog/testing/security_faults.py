"""The faults of logins, certificates and rights."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from oncelog.broker.embedded_users import NamedResources, acls_of
from oncelog.core.acl import WILDCARD_PRINCIPAL, AclPermission
from oncelog.testing.clock import ControlledClock
from oncelog.testing.fault import ArmedFault
from oncelog.testing.logins import LoginFaults

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.core.config import BrokerConfig
    from oncelog.testing.denials import Denial

__all__ = ["Controlled", "SecurityFaults"]

T = TypeVar("T")


class Controlled(Protocol):
    """The part of a `ControlledBroker` that its faults use."""

    clock: ControlledClock

    def call(self, work: Callable[[Broker], T]) -> T:
        """Run `work(broker)` in the broker's loop."""

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in that loop."""

    def dies(self, restart: bool) -> None:
        """Called in the broker's loop when a fault kills the broker."""

    def revive(self) -> None:
        """Start the broker again after a kill without restart."""

    def config_of_expired(self) -> BrokerConfig:
        """Return the broker's configs with a certificate that has expired."""


class SecurityFaults:
    """See `oncelog.testing.faults.Faults`."""

    def __init__(self, controlled: Controlled) -> None:
        self._controlled = controlled
        self._logins = LoginFaults()
        self._denials: list[Denial] = []
        self._expired: BrokerConfig | None = None
        """Configs with a certificate that has expired, while the broker shows it."""

    def refuse_login(self, times: int = 1, *, nth: int = 1, user: str | None = None) -> ArmedFault:
        """Refuse logins that are right, as if the password were wrong.

        From the `nth` on, `times` in a row; `user` leaves those of others alone. Renewals of
        sessions count. Raises `ValueError` for a broker without SASL.
        """
        whose = f" of {user}" if user is not None else ""
        what = f"a login{whose} is refused ({nth}{f' and {times - 1} more' if times > 1 else ''})"
        fault = self._new_login_fault(what, nth, times)
        self._do(lambda: self._logins.refusals.append((fault, user)))
        return fault

    def drop_reauthentication(self, times: int = 1, *, nth: int = 1) -> ArmedFault:
        """Drop a client's connection where it renews its session (KIP-368).

        Sessions have an end where `connections.max.reauth.ms` is set. `nth` and `times` are as in
        `refuse_login`.
        """
        fault = self._new_login_fault("a session is not renewed", nth, times)
        self._do(lambda: self._logins.drops.append(fault))
        return fault

    def expire_certificate(self) -> None:
        """Have the broker show a certificate that has expired, until `renew_certificate`.

        Connections that are open stay. Raises `RuntimeError` for a broker without ``secure=True``.
        """
        self._show_certificate(self._controlled.config_of_expired())

    def renew_certificate(self) -> None:
        """Take back `expire_certificate`."""
        self._show_certificate(None)

    def deny(
        self,
        operations: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        user: str | None = None,
        times: int = 1,
    ) -> ArmedFault:
        """Refuse the next `times` requests that need operations ("write") on what is named.

        They are refused as an ACL would have it, and count once each; names are as in
        `ControlledBroker.allow`. `user` leaves those of others alone. It works without users, too.
        """
        # Imported here because most tests deny nothing.
        from oncelog.testing.denials import Denial

        named = NamedResources(topic, group, transactional_id)
        principal = WILDCARD_PRINCIPAL if user is None else f"User:{user}"
        acls = acls_of(principal, operations, AclPermission.DENY, named)
        what = " and ".join(f"{each.operation.name} {each.resource}" for each in acls)
        fault = ArmedFault(f"denied: {what}", 1, times, lambda: self._do(lambda: self._allow(new)))
        new = Denial(acls, fault)
        self._do(lambda: self._denials.append(new))
        return fault

    def _allow(self, gone: Denial) -> None:
        if gone in self._denials:
            self._denials.remove(gone)

    def _denied(self, denial: Denial) -> None:
        """Count a request that was denied."""
        denial.fault.strikes()
        if denial.fault.is_spent:
            self._allow(denial)
            self._install()
            denial.fault.finish()

    def _install(self) -> None:
        """Put what is set around the handlers, and nothing where nothing is set."""
        raise NotImplementedError

    def _guard_logins(self, broker: Broker) -> None:
        if broker.server.gates:
            # Imported here because most brokers have no SASL.
            from oncelog.testing.guarded_logins import guard_logins, show_certificates

            guard_logins(broker, self._logins)
            if self._expired is not None:
                show_certificates(broker, self._expired)

    def _new_login_fault(self, what: str, nth: int, times: int) -> ArmedFault:
        def work(broker: Broker) -> bool:
            return bool(broker.server.gates)

        if not self._controlled.call(work):
            raise ValueError(f"{what}: no listener of this broker has SASL")

        def cancel() -> None:
            self._do(lambda: self._logins.drop(fault))

        fault = ArmedFault(what, nth, times, cancel)
        return fault

    def _show_certificate(self, expired: BrokerConfig | None) -> None:
        from oncelog.testing.guarded_logins import show_certificates

        self._expired = expired
        self._controlled.call(lambda broker: show_certificates(broker, expired or broker.config))

    def _do(self, work: Callable[[], None]) -> None:
        """Run `work` in the broker's event loop; if the broker is down, at its next start."""
        raise NotImplementedError
