"""Which of three brokers the demo kills."""

from oncelog.cli.demo.brokers import all_in_sync, holder_of
from oncelog.cli.demo.plan import KillTarget
from oncelog.controller.topics import TopicToCreate
from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.support.members import members

OUTPUT = TopicPartition("out", 0)


async def test_who_has_a_role_is_asked_of_the_cluster() -> None:
    async with members(3) as cluster:
        topic = TopicToCreate("out", assignment={0: (2, 3, 1)})
        await cluster[1].broker.controller.create_topics([topic])
        await cluster.agreed()
        servers = cluster[3].broker.bootstrap_servers
        found = {
            target: await holder_of(servers, target, OUTPUT, "job")
            for target in (KillTarget.LEADER, KillTarget.COORDINATOR, KillTarget.CONTROLLER)
        }
        assert found == {
            KillTarget.LEADER: 2,
            KillTarget.COORDINATOR: cluster.leader_of(TRANSACTION_STATE_TOPIC, 0),
            KillTarget.CONTROLLER: cluster[1].broker.image.controller_id,
        }
        await cluster.until(lambda: cluster[2].broker.image.partition("out", 0) is not None)
        assert await all_in_sync(servers)
        await cluster.stop(1)
        assert not await all_in_sync(servers)
