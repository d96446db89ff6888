"""docs/spark.md lists the source's options as the code knows them."""

from collections.abc import Iterable
from pathlib import Path

from oncelog.client.settings.table import BY_ROLE, GROUP_MEMBER, Role
from oncelog.spark.source_settings import KAFKA_REFUSED, OPTIONS

DOCS = Path(__file__).parents[3] / "docs" / "spark.md"


REFUSED_OR_OURS = {*KAFKA_REFUSED, *(o.name.removeprefix("kafka.") for o in OPTIONS)}


def names(settings: Iterable[str]) -> str:
    return ", ".join(f"`kafka.{name}`" for name in settings)


def test_the_guide_lists_every_option() -> None:
    text = DOCS.read_text()
    rows = [f"| `{option.name}` | {option.default} | {option.note} |" for option in OPTIONS]
    assert "\n".join(["| option | default | |", "|---|---|---|", *rows]) in text
    passed_on = sorted(BY_ROLE[Role.CONSUMER].keys() - GROUP_MEMBER.keys() - REFUSED_OR_OURS)
    assert f"Passed to the client: {names(passed_on)}" in text
    assert f"Refused, as by Spark: {names(KAFKA_REFUSED)}." in text
