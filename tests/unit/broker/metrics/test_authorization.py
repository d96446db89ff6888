"""What the authorizer decides is counted, as Kafka's counts it."""

from pathlib import Path

from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.protocol.api import ApiKey
from tests.unit.broker.context import running
from tests.unit.broker.metrics.test_catalog import values_of

PLUGIN = "kafka_server_plugins_"
CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


async def test_each_decision_is_counted_once(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG) as context:
        client = await context.connect()
        await client.ask(ApiKey.DESCRIBE_GROUPS, groups=("a", "b"))
        (connection,) = context.broker.server.connections
        connection.principal = "app"
        await client.ask(ApiKey.DESCRIBE_GROUPS, groups=("a", "b", "c"))
        values = values_of(context)
        assert values[f"{PLUGIN}authorization_allowed_total", ()] == 2
        assert values[f"{PLUGIN}authorization_denied_total", ()] == 3
        assert values[f"{PLUGIN}authorization_request_total", ()] == 5
        assert values[f"{PLUGIN}acls_count", ()] == 0


async def test_a_broker_without_an_authorizer_shows_no_decisions(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        assert not any(name.startswith(PLUGIN) for name, _ in values_of(context))
