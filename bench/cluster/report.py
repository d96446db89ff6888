"""The section of docs/benchmarks.md about clusters."""

from bench.cluster.rows import TUNED
from bench.results import EARLIER_PEER, Results

NOT_MEASURED = 'Not measured yet: `make bench ARGS="--only cluster --rounds 3 --keep --write"`.'


def markdown(measured: Results, table: list[str]) -> list[str]:
    """`table` has the rows, if there are any."""
    told = _text(measured, table) if table else [NOT_MEASURED, ""]
    return ["## Three brokers", "", *told]


def _text(measured: Results, table: list[str]) -> list[str]:
    facts = measured.facts
    kafka = facts.get("cluster kafka", EARLIER_PEER)
    commit = facts.get("cluster commit", "unknown")[:20]
    tuned = ", ".join(f"`{key}={value}`" for key, value in TUNED["kafka"].items())
    return [
        "Three brokers beside three of Apache Kafka (KRaft, each broker and controller in one"
        " process), all on one machine: topics with three replicas and `min.insync.replicas=2`, an"
        " idempotent producer with acks=all. Ours have their metadata in one SQLite file. CPU time"
        " is that of all three processes, memory too (PSS, so what they share counts once).",
        "",
        "Each"
        " start is of fresh folders; the loads run on both clusters warm, in turns. For the"
        " fail-over one producer sends record after record while the leader of its partition is"
        " killed with SIGKILL: the time is from then until the next acknowledgement, or the next"
        " commit where it is the coordinator of a transactional id. A killed process of ours is"
        " seen by the lock that it held, whatever the sessions.",
        "",
        "In the rolling restart each broker"
        " is stopped by SIGTERM and started again, the next one when all replicas are in sync."
        " Meanwhile librdkafka, aiokafka, kafka-python and the Java client send to three partitions"
        " and wait, every 20 ms, idempotent and in transactions, and consumers in groups read what"
        " they send. A run in which a record was not read once and in order counts as failed. The"
        " pause is the longest time between two answers; an error counts that a client told its"
        " application, whose part ended with it.",
        "",
        f"Tuned, Apache Kafka has {tuned}. Apache Kafka {kafka}, commit `{commit}`.",
        "",
        *table,
    ]
