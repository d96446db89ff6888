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
        " is that of all three processes, memory too (PSS, so what they share counts once). Each"
        " start is of fresh folders; the loads run on both clusters warm, in turns. For the"
        " fail-over one producer sends record after record while the leader of its partition is"
        " killed with SIGKILL: the time is from then until the next acknowledgement. A killed"
        " process of ours is seen by the lock that it held, whatever the sessions. Tuned, Apache"
        f" Kafka has {tuned}. Apache Kafka {kafka}, commit `{commit}`.",
        "",
        *table,
    ]
