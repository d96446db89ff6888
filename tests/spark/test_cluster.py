"""`spark-submit` on a standalone cluster whose executors get oncelog from an archive."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.spark.cluster import HOME, Cluster, environment
from tests.spark.support import Job, check_copied, load
from tests.support.evidence import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

PACK = ROOT / "examples" / "executor_environment.py"
EXAMPLE = ROOT / "examples" / "spark_submit_copy.py"
SUBMIT_TIMEOUT_S = 300
BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def submit(cluster: Cluster, job: Job, archive: Path) -> "subprocess.CompletedProcess[str]":
    """Run the example as docs/spark.md says, in the folder where the driver's copy is unpacked."""
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master]
    command += ["--archives", f"{archive}#environment"]
    command += ["--conf", "spark.pyspark.python=./environment/bin/python"]
    command += ["--executor-memory", "512m", "--driver-memory", "512m"]
    command += ["--conf", "spark.ui.enabled=false", str(EXAMPLE)]
    command += [job.bootstrap_servers, f"{job.name}-in", f"{job.name}-out", str(job.checkpoint)]
    return subprocess.run(
        command,
        env=environment(),
        cwd=job.folder,
        capture_output=True,
        text=True,
        timeout=SUBMIT_TIMEOUT_S,
        check=False,
    )


def test_driver_and_executors_without_our_package_run_from_an_environment_archive(
    job: Job, tmp_path: Path
) -> None:
    command = [str(BASE_PYTHON), "-c", "import oncelog"]
    bare = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert "No module named 'oncelog'" in bare.stderr
    archive = tmp_path / "environment.tar.gz"
    subprocess.run([sys.executable, str(PACK), str(archive)], check=True)
    with tarfile.open(archive) as packed:
        packed.extractall(job.folder / "environment", filter="fully_trusted")
    load(job.bootstrap_servers, job.name, 0, 1000)
    with Cluster(tmp_path / "cluster") as cluster:
        done = submit(cluster, job, archive)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    check_copied(job, 1000)
