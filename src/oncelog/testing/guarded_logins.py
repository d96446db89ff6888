"""Listeners whose logins and certificates a test has in hand.

It stands between the listeners with SASL and their rules, once a broker has started. A broker
without SASL and TLS never imports it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.connection import Acceptor, ServerConnection, Starter
from oncelog.broker.net.frames import ReadBuffer
from oncelog.broker.net.sasl import SaslConnection, SaslGate
from oncelog.broker.net.tls import ListenerTls
from oncelog.core.config import BrokerConfig
from oncelog.protocol.api import ApiKey
from oncelog.security.mechanism import Accepted, Mechanism, MechanismReply, SaslRefusal
from oncelog.testing.logins import LoginFaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.broker import Broker

__all__ = ["guard_logins", "show_certificates"]

_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


def guard_logins(broker: Broker, faults: LoginFaults) -> None:
    """Have the logins of a broker that has just started ask for faults."""
    login = broker.config.broker_login
    faults.brokers_user = None if login is None else login.username
    gates = broker.server.gates
    broker.server.gates = {name: _ControlledGate(gates[name], faults) for name in gates}


def show_certificates(broker: Broker, config: BrokerConfig) -> None:
    """Have the listeners with TLS show the certificate of other configs from now on."""
    for listener in broker.server.listeners:
        if listener.tls is not None:
            listener.tls = ListenerTls(config, listener.given)


class _ControlledGate(SaslGate):
    def __init__(self, gate: SaslGate, faults: LoginFaults) -> None:
        rules = gate.rules
        mechanisms = {
            name: partial(_Refusable, make, faults) for name, make in rules.mechanisms.items()
        }
        super().__init__(replace(rules, mechanisms=mechanisms), gate.clock, gate.rng)
        self.faults = faults

    def connection(
        self, listener: Acceptor, inner: Starter, read_buffer: ReadBuffer
    ) -> ServerConnection:
        return _ControlledConnection(listener, inner, read_buffer, self)


class _ControlledConnection(SaslConnection):
    def __init__(
        self, acceptor: Acceptor, inner: Starter, read_buffer: ReadBuffer, gate: _ControlledGate
    ) -> None:
        super().__init__(acceptor, inner, read_buffer, gate)
        self._faults = gate.faults

    def start(self, connection: ServerConnection, frame: bytearray) -> None:
        known = self._authentication.principal
        if known is not None and frame[:2] == _HANDSHAKE and self._faults.drops_renewal(known):
            self.fail("a fault is set: its session is not renewed")
        else:
            super().start(connection, frame)


class _Refusable:
    """An exchange whose user may be refused in the end, as for a wrong password."""

    def __init__(self, make: Callable[[str], Mechanism], faults: LoginFaults, nonce: str) -> None:
        self._inner = make(nonce)
        self._faults = faults

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        reply = self._inner.take(message, now_ms)
        if isinstance(reply, Accepted) and self._faults.refuses(reply.name):
            return SaslRefusal()
        return reply
