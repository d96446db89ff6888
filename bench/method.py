"""How it is measured, in words: `method.md` with what the code and the machine know filled in."""

from pathlib import Path
from string import Template

from bench.results import Results
from bench.stats import WARM_DIFFERENCE, WARM_S_MAX, WARM_S_MIN
from bench.systems import KAFKA_JVM, KAFKA_SETTINGS

TEXT = Path(__file__).with_name("method.md")
COUNTED_BY = {
    "perf stat": "by the kernel's tracepoint (`perf stat`)",
    "strace -c": "by `strace -c`, which slows the broker down meanwhile",
}


def text(measured: Results) -> str:
    """A section of markdown."""
    facts = measured.facts
    counted = COUNTED_BY.get(facts.get("system calls", ""))
    system_calls = (
        f"System calls are counted in one more window, which is not measured, {counted}."
        if counted is not None
        else "System calls were not counted: neither `perf` nor `strace` works here."
    )
    return Template(TEXT.read_text()).substitute(
        difference=f"{WARM_DIFFERENCE:.0%}",
        at_least_s=f"{WARM_S_MIN:.0f}",
        at_most_s=f"{WARM_S_MAX:.0f}",
        jvm=" ".join(KAFKA_JVM),
        kafka=", ".join(f"`{key}={value}`" for key, value in KAFKA_SETTINGS.items()),
        background_mb=facts.get("dirty background MB", "?"),
        limit_mb=facts.get("dirty limit MB", "?"),
        system_calls=system_calls,
    )
