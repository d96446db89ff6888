"""The plugin, in test runs of its own."""

from __future__ import annotations

import logging
import re
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

LOADED = bool(entry_points(group="pytest11", name="oncelog"))
"""Whether this environment was installed since there is the plugin."""
OPTIONS = [
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    *([] if LOADED else ["-p", "oncelog.testing.plugin"]),
]


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess(*OPTIONS, *options)


def test_tests_share_a_broker_and_have_topics_of_their_own(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(oncelog_broker, oncelog_topic, number):
            image = oncelog_broker.call(lambda broker: broker.image)
            assert len(image.topics[oncelog_topic].partitions) == 1
            seen.append((oncelog_broker.bootstrap_servers, oncelog_topic))

        def test_both():
            (first, one), (second, other) = seen
            assert first == second
            assert one != other
        """,
    )
    result.assert_outcomes(passed=3)


def test_loggers_are_as_before_once_the_last_broker_has_ended(pytester: pytest.Pytester) -> None:
    ours = logging.getLogger("oncelog")
    before = (ours.level, list(ours.handlers))
    result = run(
        pytester,
        """
        import logging

        def test_own_then_shared(oncelog_own_broker, request):
            request.getfixturevalue("oncelog_broker")

        def test_shared(oncelog_broker):
            assert logging.getLogger("oncelog").isEnabledFor(logging.INFO)
        """,
    )
    result.assert_outcomes(passed=2)
    assert (ours.level, ours.handlers) == before


def test_a_marker_settles_the_tests_own_broker_and_its_topic(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.oncelog(partitions=2)

        @pytest.mark.oncelog(config={"num.partitions": 7}, topic_config={"retention.ms": 99})
        def test_own(oncelog_own_broker, oncelog_broker, oncelog_topic):
            assert oncelog_own_broker.broker.config.get_int("num.partitions") == 7
            assert oncelog_broker.broker.config.get_int("num.partitions") == 5
            topic = oncelog_own_broker.call(lambda broker: broker.image.topics[oncelog_topic])
            assert (len(topic.partitions), topic.config) == (2, {"retention.ms": "99"})
        """,
        "-o",
        "oncelog_config=num.partitions = 5",
    )
    result.assert_outcomes(passed=1)


def test_settings_without_a_broker_of_its_own_are_refused(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.oncelog(config={"num.partitions": 7})
        def test_it(oncelog_topic):
            pass

        @pytest.mark.oncelog(config={"num.partitions": 7})
        def test_shared(oncelog_broker):
            pass

        @pytest.mark.oncelog(settings={})
        def test_other(oncelog_topic):
            pass

        @pytest.mark.oncelog(4)
        def test_unnamed(oncelog_topic):
            pass

        @pytest.mark.oncelog(config={"num.partitions": 7})
        def test_without_a_broker():
            pass
        """,
    )
    result.assert_outcomes(errors=4, passed=1)
    result.stdout.fnmatch_lines(["*the marker oncelog takes its settings by name, not 4*"])
    result.stdout.fnmatch_lines(
        ["*a marker with config= needs a broker of its own: use the fixture `oncelog_own_broker`*"]
    )
    result.stdout.fnmatch_lines(
        ["*knows brokers, config, partitions, secure and topic_config, not settings*"]
    )


def test_it_works_in_asyncio_tests_with_blocking_and_other_clients(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        import socket
        import oncelog

        async def test_it(oncelog_broker, oncelog_topic):
            host, _, port = oncelog_broker.bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
            async with oncelog.Producer(oncelog_broker.bootstrap_servers) as producer:
                sent = await producer.send(oncelog_topic, b"hello")
            assert sent.offset == 0
        """,
        "-o",
        "asyncio_mode=auto",
    )
    result.assert_outcomes(passed=1)


FAILING = """
    import oncelog

    async def test_it(oncelog_broker, oncelog_topic):
        async with oncelog.Producer(
            oncelog_broker.bootstrap_servers, transactional_id="transfer"
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(oncelog_topic, b"hello")
            await producer.commit_transaction()
        assert False
"""


def test_a_failed_test_is_told_what_the_broker_knows(pytester: pytest.Pytester) -> None:
    result = run(pytester, FAILING, "-o", "asyncio_mode=auto")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*oncelog: topics of 127.0.0.1:*",
            "*partition * start * stable * high * end",
            "__transaction_state-0 *",
            "test_it-1-0 * 0 * 2 * 2 * 2",
            "*oncelog: transactions of 127.0.0.1:*",
            "transfer",
            "*:*:* Empty (producer 0, epoch 0)",
            "*:*:* Ongoing (producer 0, epoch 0) on test_it-1-0",
            "*:*:* PrepareCommit *",
            "*:*:* CompleteCommit *",
            "*oncelog: the broker's log*",
            "*created topic test_it-1 *",
        ]
    )


def test_a_passed_test_and_one_without_a_broker_say_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_passes(oncelog_topic):
            pass

        def test_fails():
            assert False
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*oncelog: *")


def test_a_broker_that_a_test_leaves_down_or_faulty_is_well_for_the_next(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        import socket
        from oncelog.testing import ApiKey, ErrorCode

        def test_first(oncelog_broker, oncelog_topic):
            oncelog_broker.faults.fail(ApiKey.METADATA, ErrorCode.network_exception)
            oncelog_broker.faults.kill(restart=False)
            assert False

        def test_second(oncelog_broker, oncelog_topic):
            host, _, port = oncelog_broker.bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*cannot be looked at: the embedded broker is not running*"])


def test_the_fixture_that_hides_the_module_warns_of_its_new_name(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        def test_it(oncelog, oncelog_own_broker, oncelog_topic):
            assert oncelog is oncelog_own_broker
            assert oncelog.call(lambda broker: oncelog_topic in broker.image.topics)
        """,
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*.py:1: DeprecationWarning: the fixture `oncelog` is now `oncelog_own_broker`: *"]
    )


def test_the_topics_of_a_test_go_away_with_it(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import oncelog

        def test_1(oncelog_broker, oncelog_topic):
            for name in (f"{oncelog_topic}-target", f"{oncelog_topic}0", "kept"):
                oncelog_broker.create_topic(name)
            producer = oncelog.sync.Producer(
                oncelog_broker.bootstrap_servers, transactional_id="open"
            )
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(oncelog_topic, b"in a transaction that nobody ends").result()
            producer.close()
            oncelog_broker.faults.kill(restart=False)

        def test_2(oncelog_broker):
            topics = oncelog_broker.call(lambda broker: set(broker.image.topics))
            assert topics - {"__transaction_state"} == {"test_1-10", "kept"}
        """,
    )
    result.assert_outcomes(passed=2)


def partitions_in(report: str) -> list[str]:
    return re.findall(r"^(\S+-\d+)(?: +\d+){4}$", report, re.MULTILINE)


def test_a_failed_test_is_told_of_its_own_topics_and_how_many_more(
    pytester: pytest.Pytester,
) -> None:
    tests = """
    from oncelog import sync

    def commit(servers, topic, name):
        with sync.Producer(servers, transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"hello")
            producer.commit_transaction()

    def test_before(oncelog_broker):
        for number in range(30):
            oncelog_broker.create_topic(f"other-{number}")
        commit(oncelog_broker.bootstrap_servers, "other-0", "before")

    def test_no_transaction(oncelog_broker, oncelog_topic):
        assert False

    def test_transaction(oncelog_broker, oncelog_topic):
        commit(oncelog_broker.bootstrap_servers, "other-1", "here")
        assert False
    """
    result = run(pytester, tests)
    result.assert_outcomes(passed=1, failed=2)
    first, second = result.stdout.str().split("_ test_transaction _")
    assert partitions_in(first) == ["test_no_transaction-1-0"]
    assert "\n30 more topics, which this test did not change\n" in first
    assert "oncelog: transactions" not in first
    assert partitions_in(second) == ["__transaction_state-0", "other-1-0", "test_transaction-2-0"]
    assert "\n29 more topics, which this test did not change\n" in second
    assert re.search(r"^here\n( .*\n){4}1 more transactional id, ", second, re.MULTILINE)


def test_a_report_has_a_bound_of_lines(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.oncelog(partitions=60)
        def test_it(oncelog_topic):
            assert False
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_it-1-49 *", "10 more partitions"])


@pytest.mark.soak
def test_each_worker_of_xdist_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(oncelog_broker, oncelog_topic, number):
            print("at", os.environ["PYTEST_XDIST_WORKER"], oncelog_broker.bootstrap_servers)
        """
    )
    result = pytester.runpytest_subprocess(*OPTIONS, "-n", "2", "-rP")
    result.assert_outcomes(passed=4)
    at = {tuple(line.split()[1:]) for line in result.outlines if line.startswith("at gw")}
    assert len(at) == len({worker for worker, _ in at}) == 2
