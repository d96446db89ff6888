"""The jars of Spark's own Kafka connector, for the PySpark that is installed."""

from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.support.peer.kafka import ROOT, PeerUnavailable, fetch

POM = Path(__file__).with_name("spark.xml")


@dataclass(frozen=True, slots=True)
class Versions:
    """What is on Maven Central for a release of Spark: it lacks some of the jars of some."""

    scala: str
    connector: str
    token: str
    """Of the provider of delegation tokens, which the connector loads."""
    clients: str


VERSIONS = {
    "3.5": Versions("2.12", "3.5.7", "3.5.7", "3.4.1"),
    "4.0": Versions("2.13", "4.0.1", "4.0.0", "3.9.2"),
    "4.1": Versions("2.13", "4.1.1", "4.1.1", "3.9.2"),
    "4.2": Versions("2.13", "4.2.0", "4.0.0", "3.9.2"),
    # The connector of 4.3 is not there.
    "4.3": Versions("2.13", "4.2.0", "4.0.0", "3.9.2"),
}


def connector() -> list[Path]:
    """The connector's jars, fetched once. Raises `PeerUnavailable`."""
    release = ".".join(pyspark.__version__.split(".")[:2])
    versions = VERSIONS.get(release)
    if versions is None:
        raise PeerUnavailable(f"no Kafka connector is named for PySpark {release}")
    folder = ROOT / ".cache" / f"spark-peer-{release}"
    fetch(
        POM,
        folder,
        f"-Dscala.version={versions.scala}",
        f"-Dconnector.version={versions.connector}",
        f"-Dtoken.version={versions.token}",
        f"-Dclients.version={versions.clients}",
    )
    return sorted(folder.glob("*.jar"))
