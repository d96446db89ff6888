"""Describes and alters the SCRAM credentials of users (KIP-554)."""

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from oncelog.client.admin_base import AdminBase
from oncelog.client.errors import FatalError
from oncelog.client.values import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import HASHES, MECHANISM_NUMBERS, salted_password
from oncelog.core.secret import reveal
from oncelog.core.security_limits import SCRAM_STORED_ITERATIONS_MAX
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)

__all__ = ["Alteration", "UserAdmin", "alteration_request"]

Alteration = UserScramCredentialUpsertion | UserScramCredentialDeletion

_SALT_BYTES: Final = 32
_NAMES: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}


class UserAdmin(AdminBase):
    """The calls of `Admin` that are about users."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return the SCRAM credentials of these users (None: all), without salts and keys.

        Raises `FatalError` (resource_not_found) for a user without one. Source: KIP-554.
        """
        request = _description_request(users)

        async def call() -> dict[str, tuple[ScramCredentialInfo, ...]]:
            api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
            response = await self._cluster.request_any(api, request)
            self._check(response.error_code, response.error_message or "")
            for result in response.results:
                self._check(result.error_code, result.error_message or "")
            return {one.user: _credentials_of(one) for one in response.results}

        return await self._retrying(call)

    async def alter_user_scram_credentials(self, alterations: Sequence[Alteration]) -> None:
        """Set and delete SCRAM credentials, at most one of each user.

        The password is salted here and never sent. Raises `FatalError` for the first user that is
        refused, while the others' are changed: duplicate_resource, resource_not_found,
        unacceptable_credential, unsupported_sasl_mechanism. Source: KIP-554.
        """
        make = partial(alteration_request, tuple(alterations))
        request = await asyncio.get_running_loop().run_in_executor(None, make)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
            for result in response.results:
                self._check(result.error_code, f"{result.user}: {result.error_message or ''}")

        await self._retrying(call)


def _description_request(users: Iterable[str] | None) -> DescribeUserScramCredentialsRequest:
    """Return the request for these users; None: for all."""
    if isinstance(users, str):
        raise TypeError(f"users must be a list of names, not the str {users!r}")
    names = None if users is None else tuple(UserName(name=name) for name in users)
    return DescribeUserScramCredentialsRequest(users=names)


def _credentials_of(result: DescribeUserScramCredentialsResult) -> tuple[ScramCredentialInfo, ...]:
    """Return what a broker says of a user."""
    return tuple(
        ScramCredentialInfo(_NAMES.get(info.mechanism, str(info.mechanism)), info.iterations)
        for info in result.credential_infos
    )


def alteration_request(alterations: Sequence[Alteration]) -> AlterUserScramCredentialsRequest:
    """Return the request for these changes. It takes as long as the iterations do.

    Raises `FatalError`: unsupported_sasl_mechanism, unacceptable_credential.
    """
    deletions = [one for one in alterations if isinstance(one, UserScramCredentialDeletion)]
    upsertions = [one for one in alterations if isinstance(one, UserScramCredentialUpsertion)]
    return AlterUserScramCredentialsRequest(
        deletions=tuple(
            ScramCredentialDeletion(name=one.user, mechanism=_number(one.mechanism))
            for one in deletions
        ),
        upsertions=tuple(map(_upsertion, upsertions)),
    )


def _number(mechanism: str) -> int:
    if mechanism not in MECHANISM_NUMBERS:
        text = f"{mechanism} is none of {', '.join(HASHES)}"
        raise FatalError(ErrorCode.unsupported_sasl_mechanism, text)
    return MECHANISM_NUMBERS[mechanism]


def _upsertion(asked: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    mechanism, iterations = asked.info
    number = _number(mechanism)
    password = reveal(asked.password)
    if not password:
        raise FatalError(ErrorCode.unacceptable_credential, "the password is empty")
    if not 1 <= iterations <= SCRAM_STORED_ITERATIONS_MAX:
        # A broker refuses it too, after it was computed here.
        text = f"{iterations} iterations; at most {SCRAM_STORED_ITERATIONS_MAX} are stored"
        raise FatalError(ErrorCode.unacceptable_credential, text)
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=asked.user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
