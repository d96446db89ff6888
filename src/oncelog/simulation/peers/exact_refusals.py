"""Asks for what a broker without an authorizer, quotas or users has to refuse or have none of.

Parameters: those of `exact_asking`.
"""

from __future__ import annotations

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from oncelog.simulation.peers.exact_metadata import TopicsSeen

__all__ = ["ask_for_what_is_refused"]

_DISABLED = ErrorCode.security_disabled


async def ask_for_what_is_refused(asker: TopicsSeen) -> None:
    """Ask one of these things. Raises `LostError`."""
    await asker.context.rng.choice((_acls, _quotas, _users))(asker)


async def _acls(asker: TopicsSeen) -> None:
    count = asker.context.rng.randint(0, 3)
    describe = await asker.ask(ApiKey.DESCRIBE_ACLS, describe_acls.DescribeAclsRequest())
    asker.compare(
        describe,
        describe_acls.DescribeAclsResponse(error_code=_DISABLED, error_message="some text"),
    )
    creation = create_acls.AclCreation(resource_type=2, resource_name="x", principal="User:a")
    create = await asker.ask(
        ApiKey.CREATE_ACLS, create_acls.CreateAclsRequest(creations=(creation,) * count)
    )
    refused = create_acls.AclCreationResult(error_code=_DISABLED, error_message="some text")
    asker.compare(create, create_acls.CreateAclsResponse(results=(refused,) * count))
    filters = (delete_acls.DeleteAclsFilter(),) * count
    delete = await asker.ask(ApiKey.DELETE_ACLS, delete_acls.DeleteAclsRequest(filters=filters))
    none = delete_acls.DeleteAclsFilterResult(error_code=_DISABLED, error_message="some text")
    asker.compare(delete, delete_acls.DeleteAclsResponse(filter_results=(none,) * count))


async def _quotas(asker: TopicsSeen) -> None:
    """Filters of quotas; a match type of 0 names an entity, 1 the default, 2 any."""
    component = describe_client_quotas.ComponentData
    filters = {
        (): ErrorCode.none,
        (component(entity_type="user", match_type=0, match="a"),): ErrorCode.none,
        (component(entity_type="user", match_type=2),): ErrorCode.none,
        (
            component(entity_type="user", match_type=1),
            component(entity_type="client-id", match_type=2),
        ): ErrorCode.none,
        (component(entity_type="ip", match_type=2),): ErrorCode.none,
        (
            component(entity_type="ip", match_type=2),
            component(entity_type="user", match_type=2),
        ): ErrorCode.invalid_request,
        (component(entity_type="user", match_type=2),) * 2: ErrorCode.invalid_request,
        (component(entity_type="", match_type=2),): ErrorCode.invalid_request,
        (component(entity_type="user", match_type=0),): ErrorCode.invalid_request,
        (component(entity_type="user", match_type=2, match="a"),): ErrorCode.invalid_request,
        (component(entity_type="user", match_type=7),): ErrorCode.invalid_request,
        (component(entity_type="tribe", match_type=2),): ErrorCode.unsupported_version,
    }
    components, error = asker.context.rng.choice(list(filters.items()))
    request = describe_client_quotas.DescribeClientQuotasRequest(components=components)
    answer = await asker.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    is_fine = error is ErrorCode.none
    asker.compare(
        answer,
        describe_client_quotas.DescribeClientQuotasResponse(
            error_code=error,
            error_message=None if is_fine else "some text",
            entries=() if is_fine else None,
        ),
    )


async def _users(asker: TopicsSeen) -> None:
    users = describe_user_scram_credentials
    names = asker.context.rng.choice((None, (), ("a",), ("a", "b"), ("a", "b", "a")))
    asked = None if names is None else tuple(users.UserName(name=name) for name in names)
    answer = await asker.ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        users.DescribeUserScramCredentialsRequest(users=asked),
    )
    results = []
    for name in dict.fromkeys(names or ()):
        is_twice = (names or ()).count(name) > 1
        error = ErrorCode.duplicate_resource if is_twice else ErrorCode.resource_not_found
        results.append(
            users.DescribeUserScramCredentialsResult(
                user=name, error_code=error, error_message="some text"
            )
        )
    asker.compare(answer, users.DescribeUserScramCredentialsResponse(results=tuple(results)))
