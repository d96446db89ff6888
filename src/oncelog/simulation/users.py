"""Who each process of a secure run is, and the settings by which brokers know it.

Clients whose rights change (`ruled`) are users of SCRAM, each with a name of its own; the brokers,
and all other clients, are super users by PLAIN. Passwords are drawn from the seed and stand in no
plan, so nothing that is kept of a run has one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.settings.security import Security
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.core.sasl import PLAIN
from oncelog.core.secret import Secret
from oncelog.peer.sasl import Sasl
from oncelog.simulation.plan import Plan, part_rng

__all__ = [
    "LISTENER",
    "OTHER_SALT",
    "RIGHT_SALT",
    "SCRAM",
    "ClientLogin",
    "broker_settings",
    "login_of",
    "password_of",
    "user_of",
]

SCRAM: Final = "SCRAM-SHA-256"
LISTENER: Final = "SASL_PLAINTEXT"
RIGHT_SALT: Final = b"of the clients' own"
"""Of the passwords that clients have: it tells them from others."""
OTHER_SALT: Final = b"of other passwords"
_BROKER: Final = "broker"
_ROOT: Final = "root"
_PREFIX: Final = f"listener.name.{LISTENER.lower()}."
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """What a client needs to get in. `ruled`: its rights change, so that it may be refused."""

    sasl: Sasl
    is_ruled: bool
    forgets: Callable[[], bool]
    """Whether it lets a session end now, instead of authenticating again."""
    heeds: bool
    """Whether a scripted producer gives a transaction up for a refusal, as stock clients do."""
    refused: Callable[[tuple[str, int], float], None]
    """Is told that a broker has refused it, and since when it asked (virtual time, seconds)."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of our own clients."""
        return {"security": Security(None, self.sasl)}


def user_of(process: str, ruled: Mapping[str, Any]) -> str:
    """Return the user that a client's process is."""
    client = process.partition(".")[0]
    return client if client in ruled else _ROOT


def password_of(seed: int, user: str) -> str:
    """Return a user's password: as long as the run lasts the one that its client has."""
    return f"geheim{part_rng(seed, f'password of {user}').getrandbits(64):016x}"


def login_of(
    plan: Plan,
    process: str,
    rng: random.Random,
    forgets: Callable[[], bool],
    refused: Callable[[tuple[str, int], float], None],
) -> ClientLogin:
    """Return who a client's process is."""
    ruled: Mapping[str, Any] = plan.security["ruled"]
    user = user_of(process, ruled)
    mechanism = PLAIN if user == _ROOT else SCRAM
    sasl = Sasl(mechanism, user, Secret(password_of(plan.seed, user)), rng=rng)
    heeds = bool(ruled.get(user, {}).get("heeds"))
    return ClientLogin(sasl, user != _ROOT, forgets, heeds, refused)


def broker_settings(plan: Plan, address: str) -> dict[str, str]:
    """Return the settings of a broker of a secure run; of any other one those of its listener."""
    if not plan.security:
        return {"listeners": f"PLAINTEXT://{address}"}
    users = {user: password_of(plan.seed, user) for user in (_BROKER, _ROOT)}
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    sessions_ms: Mapping[str, int] = plan.security["sessions_ms"]
    return {
        "listeners": f"{LISTENER}://{address}",
        "security.inter.broker.protocol": LISTENER,
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "connection.failed.authentication.delay.ms": "20",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(f"User:{user}" for user in users),
        f"{_PREFIX}plain.sasl.jaas.config": (
            f'{_MODULE} required username="{_BROKER}" password="{users[_BROKER]}" {known};'
        ),
        **{
            f"{_PREFIX}{mechanism.lower()}.connections.max.reauth.ms": str(session_ms)
            for mechanism, session_ms in sessions_ms.items()
        },
    }
