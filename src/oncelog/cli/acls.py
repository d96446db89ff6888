"""``oncelog acls``: who may do what, as `kafka-acls` has it, and why.

ACLs of a broker that does not run are changed by its log directory: the first ones, say.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from oncelog.cli.acl_words import (
    ANY,
    HOST,
    OPERATIONS,
    PRINCIPAL,
    RESOURCE,
    Resource,
    operations_on,
)
from oncelog.cli.completing import complete_resources
from oncelog.cli.connecting import administrator, connection_options
from oncelog.cli.output import Column, print_json, print_rows, print_text
from oncelog.cli.tool import Failure, ToolGroup, data_dir_option, json_option, run
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    parse_super_users,
)

if TYPE_CHECKING:
    from oncelog.client import Admin
    from oncelog.controller.decision import ControllerEvent
    from oncelog.controller.image import MetadataImage
    from oncelog.security.authorizer import Ruling

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_COLUMNS: Final = (
    Column("principal", "Principal", style="cyan"),
    Column("permission", "Permission"),
    Column("operation", "Operation"),
    Column("resource_type", "Resource"),
    Column("name", "Name"),
    Column("pattern_type", "Pattern"),
    Column("host", "Host"),
)
_EVERYWHERE: Final = "*"
_NO_ADDRESS: Final = "-"
"""An address that no ACL names: only those for all hosts are about it."""


@click.group("acls", cls=ToolGroup)
def command() -> None:
    """List, add, remove and check ACLs: who may do what."""


def _rule_arguments(function: F) -> F:
    """The arguments that name ACLs: USER OPERATIONS RESOURCE..."""
    function = click.argument(
        "resources",
        metavar="RESOURCE...",
        nargs=-1,
        required=True,
        type=RESOURCE,
        shell_complete=complete_resources,
    )(function)
    function = click.argument("operations", metavar="OPERATIONS", type=OPERATIONS)(function)
    return click.argument("user", metavar="USER", type=PRINCIPAL)(function)


@command.command("add")
@_rule_arguments
@click.option("--deny", "is_denied", is_flag=True, help="Forbid it, whatever else allows it.")
@click.option(
    "--host",
    metavar="ADDRESS",
    type=HOST,
    default=_EVERYWHERE,
    help="Only for clients at this address, or in this network.",
)
@data_dir_option
@connection_options
def add_command(
    user: str,
    operations: tuple[str, ...],
    resources: tuple[Resource, ...],
    is_denied: bool,
    host: str,
    directories: tuple[str, ...],
    servers: str,
) -> None:
    """Allow a user, or deny it, operations on resources.

    OPERATIONS are names with commas between them (read,write), all, produce or consume, which mean
    what a producer and a consumer need. A RESOURCE is topic:NAME, topic:PREFIX*, topic:* for all
    topics, group:NAME, transactional-id:NAME or cluster.
    """
    permission = AclPermission.DENY if is_denied else AclPermission.ALLOW
    acls = []
    for resource in resources:
        for operation in operations_on(operations, resource):
            if operation is AclOperation.ANY or resource.name is None:
                raise click.BadParameter(
                    f"{ANY} only selects ACLs to remove: write all, or topic:*"
                )
            kind, pattern = resource.resource_type, resource.pattern_type
            acls.append(Acl(kind, resource.name, pattern, user, host, operation, permission))
    where = _Where(directories, servers)
    where.create(acls)
    for acl in acls:
        print_text(acl.sentence)


@command.command("remove")
@_rule_arguments
@click.option("--deny", "is_denied", is_flag=True, help="Remove what denies, not what allows.")
@click.option("--host", metavar="ADDRESS", type=HOST, help="Only what is for this address.")
@data_dir_option
@connection_options
def remove_command(
    user: str,
    operations: tuple[str, ...],
    resources: tuple[Resource, ...],
    is_denied: bool,
    host: str | None,
    directories: tuple[str, ...],
    servers: str,
) -> None:
    """Remove ACLs of a user, named as `add` names them; the word any stands for all there are."""
    permission = AclPermission.DENY if is_denied else AclPermission.ALLOW
    filters = [
        AclFilter(*resource, user, host, operation, permission)
        for resource in resources
        for operation in operations_on(operations, resource)
    ]
    removed = _Where(directories, servers).delete(filters)
    if not removed:
        raise Failure("there are no such ACLs: see `oncelog acls list`")
    for acl in removed:
        print_text(f"removed: {acl.sentence}")


@command.command("list")
@click.argument(
    "resources",
    metavar="[RESOURCE]...",
    nargs=-1,
    type=RESOURCE,
    shell_complete=complete_resources,
)
@click.option("--user", metavar="USER", type=PRINCIPAL, help="Only those that name this user.")
@data_dir_option
@connection_options
@json_option()
def list_command(
    resources: tuple[Resource, ...],
    user: str | None,
    directories: tuple[str, ...],
    servers: str,
    as_json: bool,
) -> None:
    """List ACLs: all, or those that are about a resource, also by a prefix or for all."""
    where = _Where(directories, servers)
    found: set[Acl] = set()
    for resource in resources or (None,):
        chosen = ANY_ACL if resource is None else _about(resource)
        found.update(where.acls(chosen._replace(principal=user)))
    rows = [
        (
            acl.principal,
            acl.permission.name,
            acl.operation.name,
            acl.resource_type.name,
            acl.name,
            acl.pattern_type.name,
            acl.host,
        )
        for acl in sorted(found)
    ]
    print_rows(_COLUMNS, rows, as_json=as_json, empty="there are no such ACLs")


@command.command("check")
@click.argument("user", metavar="USER", type=PRINCIPAL)
@click.argument("operations", metavar="OPERATION", type=OPERATIONS)
@click.argument("resource", metavar="RESOURCE", type=RESOURCE, shell_complete=complete_resources)
@click.option(
    "--host",
    metavar="ADDRESS",
    type=HOST,
    default=_EVERYWHERE,
    help="Where the client is. Without it only ACLs for all hosts count.",
)
@data_dir_option
@connection_options
@json_option()
@click.pass_context
def check_command(
    ctx: click.Context,
    user: str,
    operations: tuple[str, ...],
    resource: Resource,
    host: str,
    directories: tuple[str, ...],
    servers: str,
    as_json: bool,
) -> None:
    """Say whether a user may do something to a resource, and by which ACL.

    Ends with exit code 1 if it may not. With --data-dir no super user is known.
    """
    if resource.name is None or resource.pattern_type is not PatternType.LITERAL:
        raise click.BadParameter("name one resource, as topic:orders")
    where = _Where(directories, servers)
    address = _NO_ADDRESS if host == _EVERYWHERE else host
    acls, trusted = where.acls_and_trusted(_about(resource))
    is_allowed = True
    for operation in operations_on(operations, resource):
        ruling = _ruling(acls, trusted, user, address, operation, resource)
        is_allowed &= ruling.is_allowed
        verdict = "allowed" if ruling.is_allowed else "denied"
        reason = _reason(ruling, user, operation, resource)
        if as_json:
            print_json({"operation": operation.name, "verdict": verdict, "reason": reason})
        else:
            print_text(f"{verdict}: {reason}")
    ctx.exit(0 if is_allowed else 1)


class _Trusted(NamedTuple):
    """Whom the settings of the broker trust."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False


def _about(resource: Resource) -> AclFilter:
    """Return the filter for what is about a resource, whichever pattern an ACL has."""
    kind, name, pattern = resource
    return AclFilter(kind, name, PatternType.MATCH if pattern is PatternType.LITERAL else pattern)


def _ruling(
    acls: Iterable[Acl],
    trusted: _Trusted,
    user: str,
    address: str,
    operation: AclOperation,
    resource: Resource,
) -> Ruling:
    from oncelog.security.authorizer import AclRules

    rules = AclRules(acls, trusted.super_users, allow_everyone=trusted.allow_everyone)
    return rules.ruling(user, address, operation, resource.resource_type, resource.name or "")


def _reason(ruling: Ruling, user: str, operation: AclOperation, resource: Resource) -> str:
    if ruling.acl is not None:
        return ruling.acl.sentence
    if ruling.reason == "SuperUser":
        return f"{user} is a super user"
    kind = resource.resource_type
    name = "the cluster" if kind is ResourceType.CLUSTER else f"{kind.name.lower()} {resource.name}"
    name = name.replace("_", " ", 1) if kind is ResourceType.TRANSACTIONAL_ID else name
    if ruling.is_allowed:
        return f"no ACL is about {name}, and then everyone may"
    return f"no ACL lets {user} {operation.name} {name}"


class _Where(NamedTuple):
    """The broker, or the log directories of one that does not run."""

    directories: tuple[str, ...]
    servers: str

    def acls(self, chosen: AclFilter) -> Iterable[Acl]:
        """Return what a filter selects."""
        if self.directories:
            return filter(chosen.matches, self._stored().acls.values())
        return self._asked(lambda admin: admin.describe_acls(chosen))

    def acls_and_trusted(self, chosen: AclFilter) -> tuple[Iterable[Acl], _Trusted]:
        """Return that, and whom the broker's settings trust."""
        if self.directories:
            return self.acls(chosen), _Trusted()

        async def work(admin: Admin) -> tuple[Iterable[Acl], _Trusted]:
            acls = await admin.describe_acls(chosen)
            cluster = await admin.describe_cluster()
            first = str(min(node.node_id for node in cluster.nodes))
            settings = (await admin.describe_configs([first], "broker"))[first]
            values = {name: entry.value or "" for name, entry in settings.items()}
            everyone = values.get("allow.everyone.if.no.acl.found", "")
            return acls, _Trusted(
                parse_super_users(values.get("super.users", "")), everyone == "true"
            )

        return self._asked(work)

    def create(self, acls: Sequence[Acl]) -> None:
        """Set ACLs."""
        if not self.directories:
            self._asked(lambda admin: admin.create_acls(acls))
            return
        from oncelog.controller.events import CreateAcls

        outcomes = self._decided(CreateAcls(tuple(acls)))
        for acl, outcome in zip(acls, outcomes, strict=True):
            if outcome.error:
                raise Failure(f"{acl.sentence}: {outcome.message} ({outcome.error.name.upper()})")

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete what filters select; return it."""
        if not self.directories:
            found = self._asked(lambda admin: admin.delete_acls(filters))
        else:
            from oncelog.controller.events import DeleteAcls

            deletions = self._decided(DeleteAcls(tuple(filters)))
            found = tuple(deletion.acls for deletion in deletions)
        return sorted({acl for each in found for acl in each})

    def _asked(self, ask: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        async def work() -> T:
            async with administrator(self.servers, "acls") as admin:
                return await ask(admin)

        return run(work, self.servers)

    def _decided(self, event: ControllerEvent[T]) -> T:
        from oncelog.broker.controller.stopped import decide_stopped
        from oncelog.cli.stopped import on_stopped

        return on_stopped(
            self.directories, lambda store, known: decide_stopped(store, known, event)
        )

    def _stored(self) -> MetadataImage:
        from oncelog.broker.controller.stopped import read_stopped
        from oncelog.cli.stopped import on_stopped

        return on_stopped(self.directories, read_stopped)
