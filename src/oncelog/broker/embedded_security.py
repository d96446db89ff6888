"""What `secure=True` gives an embedded broker: an authority, three users, and clients' settings.

The authority and the broker's certificate are made once per process, and end with it. Needs the
extra `secure`, which has the package cryptography.
"""

from __future__ import annotations

import secrets
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple

from oncelog.broker.embedded_authority import DAYS, Issued, ThrowawayAuthority
from oncelog.controller.events import AlterScramCredentials, ScramUpsertion
from oncelog.core.config_definition import ConfigError
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.core.sasl import MECHANISM_NUMBERS, ScramCredential, keys_of, salted_password
from oncelog.core.secret import Secret
from oncelog.core.security_limits import SCRAM_ITERATIONS_MIN

__all__ = ["USERS", "EmbeddedSecurity"]

USERS: Final = ("admin", "app", "reader")
"""The users of clients."""

_HOST: Final = "127.0.0.1"
_HOSTS: Final = (_HOST, "localhost", "::1")
_MECHANISM: Final = "SCRAM-SHA-512"
_BROKER: Final = "broker"
"""The user that brokers are to each other. It has no SCRAM credential, since those are there only
once a broker runs.
"""
_LISTENER: Final = "listener.name.sasl_ssl."
_MODULES: Final = "org.apache.kafka.common.security"
_OWN_KEYS: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")


class _Certificates(NamedTuple):
    """What all brokers of this process show."""

    authority: str
    valid: Issued
    expired: Issued


_making = threading.Lock()
"""Held while they are made: brokers of a cluster start in several threads at once."""


@cache
def _made() -> _Certificates:
    authority = ThrowawayAuthority("oncelog throw-away authority")
    valid, expired = (authority.sign("oncelog", _HOSTS, days) for days in (DAYS, -1))
    return _Certificates(authority.pem, valid, expired)


def _certificates() -> _Certificates:
    with _making:
        return _made()


class _Login(NamedTuple):
    """What a client needs to get in."""

    servers: str
    user: str
    password: str
    authority: str


class EmbeddedSecurity:
    """The users of one broker or cluster. Raises `ExtraMissing` without cryptography."""

    def __init__(self) -> None:
        self._passwords = {user: secrets.token_urlsafe(16) for user in (*USERS, _BROKER)}
        upsertions = tuple(_upsertion(user, self._passwords[user]) for user in USERS)
        self.credentials = AlterScramCredentials((), upsertions, Secret(secrets.token_hex(32)))
        """The event that makes the users."""

    @property
    def authority(self) -> str:
        """The certificate of the authority that signs the broker's, as PEM."""
        return _certificates().authority

    def config(
        self, given: Mapping[str, str], port: int, *, has_expired: bool = False
    ) -> dict[str, str]:
        """Return the configs of a broker. Raises `ConfigError` for what is `given` twice."""
        for key in _OWN_KEYS:
            if key in given:
                raise ConfigError(f"secure=True sets {key}: leave it out of config")
        own = _certificates().expired if has_expired else _certificates().valid
        password = self._passwords[_BROKER]
        return {
            "listeners": f"SASL_SSL://{_HOST}:{port}",
            "ssl.keystore.certificate.chain": own.certificate,
            "ssl.keystore.key": own.key,
            "ssl.truststore.certificates": self.authority,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:admin;User:{_BROKER}",
            "allow.everyone.if.no.acl.found": "true",
            "sasl.enabled.mechanisms": f"{_MECHANISM},PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{_LISTENER}plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required username="{_BROKER}" '
                f'password="{password}" user_{_BROKER}="{password}";'
            ),
        }

    def is_known_to(self, stored: Mapping[str, Mapping[str, ScramCredential]]) -> bool:
        """Whether the users are there, with these passwords."""
        return all(
            (found := stored.get(one.user, {}).get(_MECHANISM)) is not None
            and b64encode(found.salt).decode() == one.salt.value
            for one in self.credentials.upsertions
        )

    def client_config(self, servers: str, user: str, for_: str) -> dict[str, object]:
        """Return the settings of a client. Raises `ValueError` for an unknown user or client."""
        if user not in USERS:
            raise ValueError(f"there is no user {user!r}: the users are {', '.join(USERS)}")
        settings = _CLIENTS.get(for_)
        if settings is None:
            raise ValueError(f"for_={for_!r} is none of {', '.join(_CLIENTS)}")
        return settings(_Login(servers, user, self._passwords[user], self.authority))


def _upsertion(user: str, password: str) -> ScramUpsertion:
    salt = secrets.token_bytes(16)
    salted = salted_password(_MECHANISM, password, salt, SCRAM_ITERATIONS_MIN)
    keys = keys_of(_MECHANISM, salted)
    return ScramUpsertion(
        user,
        MECHANISM_NUMBERS[_MECHANISM],
        SCRAM_ITERATIONS_MIN,
        *(Secret(b64encode(key).decode()) for key in (salt, keys.stored_key, keys.server_key)),
    )


def _confluent(login: _Login) -> dict[str, object]:
    return {
        "bootstrap.servers": login.servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": login.authority,
        "sasl.mechanisms": _MECHANISM,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


def _python(login: _Login) -> dict[str, object]:
    return {
        "bootstrap_servers": login.servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cadata=login.authority),
        "sasl_mechanism": _MECHANISM,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


def _java(login: _Login) -> dict[str, object]:
    return {
        "bootstrap.servers": login.servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        # One line, as a properties file has it.
        "ssl.truststore.certificates": " ".join(login.authority.splitlines()),
        "sasl.mechanism": _MECHANISM,
        "sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required "
            f'username="{login.user}" password="{login.password}";'
        ),
    }


def _spark(login: _Login) -> dict[str, object]:
    return {f"kafka.{name}": value for name, value in _java(login).items()}


def _oncelog(login: _Login) -> dict[str, object]:
    return {
        "bootstrap_servers": login.servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": login.authority,
        "sasl.mechanism": _MECHANISM,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }


_CLIENTS: Final[Mapping[str, Callable[[_Login], dict[str, object]]]] = {
    "confluent": _confluent,
    "aiokafka": _python,
    "kafka-python": _python,
    "java": _java,
    "spark": _spark,
    "oncelog": _oncelog,
}
