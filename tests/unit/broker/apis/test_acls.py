"""ACLs over the wire: set, shown, deleted, kept; and by our Admin, also without asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Admin,
    FatalError,
    PatternType,
    ResourceType,
)
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_acls import AclCreation
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter
from tests.support.members import members
from tests.unit.broker.context import Running, running

INVALID = ErrorCode.invalid_request
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str, operation: str = "READ", kind: PatternType = LITERAL) -> Acl:
    return Acl(TOPIC, name, kind, "User:a", "*", AclOperation[operation], AclPermission.ALLOW)


def creation(name: str, **fields: Any) -> AclCreation:
    return AclCreation(
        **{
            "resource_type": 2,
            "resource_name": name,
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
            **fields,
        }
    )


@asynccontextmanager
async def authorizing(folder: Path) -> AsyncIterator[Running]:
    async with running(folder, AUTHORIZER) as context:
        yield context


async def test_our_admin_sets_shows_and_deletes_acls(tmp_path: Path) -> None:
    async with (
        authorizing(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        assert await admin.describe_acls() == ()
        acls = [acl("orders"), acl("orders", "WRITE"), acl("o", kind=PREFIXED), acl("*", "ALL")]
        await admin.create_acls(acls)
        await admin.create_acls(acls[:1])
        assert set(await admin.describe_acls()) == set(acls)
        about = AclFilter(TOPIC, "orders", PatternType.MATCH, operation=AclOperation.READ)
        assert set(await admin.describe_acls(about)) == {acls[0], acls[2]}
        deleted = await admin.delete_acls([AclFilter(*acls[3]), AclFilter(name="orders")])
        assert deleted == ((acls[3],), (acls[0], acls[1]))
        assert await admin.describe_acls() == (acls[2],)


async def test_what_is_refused_raises_kafka_s_error_and_leaves_the_others(tmp_path: Path) -> None:
    async with (
        authorizing(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        bad = acl("t")._replace(principal="a")
        with pytest.raises(FatalError, match="a may READ topic t: Could not parse") as caught:
            await admin.create_acls([bad, acl("u")])
        assert caught.value.code is INVALID
        assert await admin.describe_acls() == (acl("u"),)
        unknown = AclFilter(ResourceType.UNKNOWN)
        with pytest.raises(FatalError, match="Unknown patternFilter"):
            await admin.delete_acls([unknown, AclFilter(*acl("u"))])
        assert await admin.describe_acls() == ()
        with pytest.raises(FatalError, match="Unknown patternFilter"):
            await admin.describe_acls(unknown)


async def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as context,
        Admin(context.broker.bootstrap_servers) as admin,
    ):
        for call in (
            admin.create_acls([acl("t")]),
            admin.describe_acls(),
            admin.delete_acls([AclFilter()]),
        ):
            with pytest.raises(FatalError, match="No Authorizer is configured") as caught:
                await call
            assert caught.value.code is ErrorCode.security_disabled


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_each_acl_and_each_filter_has_its_own_result(tmp_path: Path, version: int) -> None:
    async with authorizing(tmp_path) as context:
        client = await context.connect()
        creations = (
            creation("t"),
            creation("t", operation=99),
            creation("t", resource_type=4),
            creation("p", resource_pattern_type=4, operation=4),
            creation(""),
        )
        response = await client.ask(ApiKey.CREATE_ACLS, version, creations=creations)
        assert [(one.error_code, one.error_message) for one in response.results] == [
            (0, ""),
            (INVALID, "Invalid operation UNKNOWN"),
            (INVALID, "The only valid name for the CLUSTER resource is kafka-cluster"),
            (0, ""),
            (INVALID, "Invalid empty resource name"),
        ]
        everything: dict[str, Any] = {
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        response = await client.ask(
            ApiKey.DESCRIBE_ACLS, version, resource_type_filter=1, **everything
        )
        assert [
            (one.resource_type, one.resource_name, one.pattern_type, len(one.acls))
            for one in response.resources
        ] == [(2, "p", 4, 1), (2, "t", 3, 1)]
        filters = (
            DeleteAclsFilter(resource_type_filter=1, resource_name_filter="p", **everything),
            DeleteAclsFilter(resource_type_filter=99, **everything),
        )
        response = await client.ask(ApiKey.DELETE_ACLS, version, filters=filters)
        first, second = response.filter_results
        (deleted,) = first.matching_acls
        assert (deleted.resource_name, deleted.pattern_type, deleted.operation) == ("p", 4, 4)
        assert (second.error_code, second.error_message) == (INVALID, "Unknown patternFilter.")


async def test_a_description_by_a_number_that_is_none_is_empty(tmp_path: Path) -> None:
    async with authorizing(tmp_path) as context:
        client = await context.connect()
        await client.ask(ApiKey.CREATE_ACLS, creations=(creation("t"),))
        chosen = {"resource_type_filter": 1, "pattern_type_filter": 1, "permission_type": 1}
        response = await client.ask(ApiKey.DESCRIBE_ACLS, operation=77, **chosen)
        assert (response.error_code, response.resources) == (0, ())
        response = await client.ask(ApiKey.DESCRIBE_ACLS, operation=0, **chosen)
        assert (response.error_code, response.error_message) == (INVALID, "Unknown entryFilter.")


async def test_nothing_asked_changes_nothing(tmp_path: Path) -> None:
    async with authorizing(tmp_path) as context:
        client = await context.connect()
        assert (await client.ask(ApiKey.CREATE_ACLS)).results == ()
        assert (await client.ask(ApiKey.DELETE_ACLS)).filter_results == ()


async def test_acls_are_kept_through_a_restart(tmp_path: Path) -> None:
    async with authorizing(tmp_path) as context:
        client = await context.connect()
        await client.ask(ApiKey.CREATE_ACLS, creations=(creation("t"),))
    async with running(tmp_path) as context:
        assert list(context.broker.image.acls.values()) == [acl("t")]


async def test_an_acl_that_one_broker_was_asked_for_is_in_force_on_the_others() -> None:
    async with (
        members(2, AUTHORIZER) as cluster,
        Admin(cluster[2].broker.bootstrap_servers) as admin,
    ):
        await admin.create_acls([acl("t")])
        assert all(set(one.broker.image.acls.values()) == {acl("t")} for one in cluster)
        await admin.delete_acls([AclFilter()])
        assert not any(one.broker.image.acls for one in cluster)
