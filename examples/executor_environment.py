"""Pack an environment for a Spark driver and executors whose Python does not have oncelog.

    python examples/executor_environment.py environment.tar.gz

docs/spark.md ("Clusters") says how `spark-submit` takes it. Run this with the Python that the
executors have, at the same path: a virtual environment leads to the interpreter that made it.
PySpark is left out, because every Spark installation brings its own.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
COLUMNS = ("numpy>=1.26,<3", "pandas>=2.2,<3", "pyarrow>=18")
"""What the extra `spark` asks for beside PySpark and a JRE."""


def pack(archive: Path, what: str = str(CHECKOUT)) -> None:
    """Write the archive; `what` is what pip is to install: a checkout, a wheel, a name."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        # The interpreter that a virtual environment was made with, if this is one.
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        subprocess.run([base, "-m", "venv", environment], check=True)
        inside = str(environment / "bin" / "python")
        pip = [inside, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, what, *COLUMNS], check=True)
        with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
            packed.add(environment, arcname=".")


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
