"""Credentials of users over the wire: set, shown without their keys, kept, on every broker."""

from __future__ import annotations

import io
import logging
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import (
    Admin,
    FatalError,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import credential_of, salted_password
from oncelog.core.secret import Secret
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.describe_configs import DescribeConfigsResource
from oncelog.protocol.messages.describe_user_scram_credentials import UserName
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.support.members import members
from tests.unit.broker.context import running

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = b"a salt of sixteen"
SALTED = salted_password(SHA256, "geheim", SALT, 4096)
CREDENTIAL = credential_of(SHA256, SALTED, SALT, 4096)


def put(user: str, mechanism: str = SHA256, password: str = "geheim") -> Any:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism), Secret(password))


def upsertion(user: str) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4096, salt=SALT, salted_password=SALTED
    )


async def test_our_admin_sets_shows_and_deletes_credentials(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        assert await admin.describe_user_scram_credentials() == {}
        await admin.alter_user_scram_credentials([put("b"), put("a", SHA512)])
        await admin.alter_user_scram_credentials([put("a")])
        both = (ScramCredentialInfo(SHA256, 4096), ScramCredentialInfo(SHA512, 4096))
        found = await admin.describe_user_scram_credentials()
        assert found == {"a": both, "b": both[:1]}
        assert list(found) == ["a", "b"]
        assert await admin.describe_user_scram_credentials(["b"]) == {"b": both[:1]}
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion("a", SHA512)])
        assert (await admin.describe_user_scram_credentials())["a"] == both[:1]


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([put("u"), put("u", SHA512)], ErrorCode.duplicate_resource),
        ([UserScramCredentialDeletion("u", SHA256)], ErrorCode.resource_not_found),
        ([put("")], ErrorCode.unacceptable_credential),
        ([put("u", "PLAIN")], ErrorCode.unsupported_sasl_mechanism),
        ([UserScramCredentialDeletion("u", "SHA-1")], ErrorCode.unsupported_sasl_mechanism),
        ([put("u", password="")], ErrorCode.unacceptable_credential),
        (
            [UserScramCredentialUpsertion("u", ScramCredentialInfo(SHA256, 4095), "x")],
            ErrorCode.unacceptable_credential,
        ),
        (
            [UserScramCredentialUpsertion("u", ScramCredentialInfo(SHA256, 16385), "x")],
            ErrorCode.unacceptable_credential,
        ),
    ],
)
async def test_what_is_refused_raises_kafka_s_error(
    tmp_path: Path, alterations: list[Any], code: ErrorCode
) -> None:
    async with (
        running(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(FatalError) as caught:
            await admin.alter_user_scram_credentials(alterations)
        assert caught.value.code is code
        assert await admin.describe_user_scram_credentials() == {}


async def test_a_user_without_a_credential_is_not_found(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        with pytest.raises(FatalError, match="does not exist: nobody") as caught:
            await admin.describe_user_scram_credentials(["nobody"])
        assert caught.value.code is ErrorCode.resource_not_found
        with pytest.raises(TypeError, match="must be a list"):
            await admin.describe_user_scram_credentials("nobody")


async def test_a_user_who_is_named_twice_is_an_error_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        await client.ask(api, upsertions=(upsertion("a"), upsertion("b")))
        users = tuple(UserName(name=name) for name in ("a", "b", "a", "c"))
        response = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=users)
        assert {one.user: one.error_code for one in response.results} == {
            "a": ErrorCode.duplicate_resource,
            "b": ErrorCode.none,
            "c": ErrorCode.resource_not_found,
        }


async def test_a_credential_is_kept_through_a_restart_as_what_verifies_it(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        response = await client.ask(api, upsertions=(upsertion("a"),))
        assert [one.error_code for one in response.results] == [ErrorCode.none]
        secret = context.broker.image.scram_secret
    async with running(tmp_path) as context:
        assert context.broker.image.scram_credentials == {"a": {SHA256: CREDENTIAL}}
        assert context.broker.image.scram_secret == secret
        assert len((secret or Secret("")).value) == 64


async def test_nothing_that_a_client_or_a_log_shows_has_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(tmp_path) as context:
        client = await context.connect()
        api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        request = AlterUserScramCredentialsRequest(upsertions=(upsertion("a"),))
        shown = io.StringIO()
        print(request, upsertion("a"), file=shown)
        print(await client.ask(api, upsertions=request.upsertions), file=shown)
        print(await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS), file=shown)
        broker = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=None
        )
        print(await client.ask(ApiKey.DESCRIBE_CONFIGS, resources=(broker,)), file=shown)
        image = context.broker.image
        print(image.scram_credentials, image.scram_secret, file=shown)
        print(SaslAuthenticateRequest(auth_bytes=b"\0a\0geheim"), file=shown)
        secret = image.scram_secret
    assert secret is not None
    text = shown.getvalue() + caplog.text
    assert "user 'a'" in text
    for key in (SALTED, CREDENTIAL.stored_key, CREDENTIAL.server_key, SALT, b"geheim"):
        for form in (repr(key)[2:-1], b64encode(key).decode(), key.hex()):
            assert form not in text
    assert secret.value not in text


@pytest.mark.slow
async def test_every_broker_has_what_one_of_them_was_asked_for() -> None:
    async with members(3) as cluster:
        for number, member in enumerate(cluster):
            async with Admin(member.broker.bootstrap_servers) as admin:
                await admin.alter_user_scram_credentials([put(f"user{number}")])
        await cluster.agreed()
        images = [member.broker.image for member in cluster]
        assert {len(image.scram_credentials) for image in images} == {3}
        assert len({image.scram_secret for image in images}) == 1
