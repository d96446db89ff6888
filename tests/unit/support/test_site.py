"""The site of the documentation builds from the files of the checkout, without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.site import ROOT, site_path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a broken link, a missing anchor or a page that the menu leaves out is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.parent.name for path in site.glob("*/index.html")}
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert documents | {"architecture", "changelog", "contributing"} <= pages


@pytest.mark.slow
def test_links_to_files_of_the_checkout_lead_to_pages(site: Path) -> None:
    readme = (site / "index.html").read_text()
    assert 'href="architecture/"' in readme
    assert 'href="docs/' not in readme
    example = site / "examples" / "transactional_copy" / "index.html"
    assert "send_offsets_to_transaction" in example.read_text()


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("README.md", "index.md"),
        ("docs/spark.md", "spark.md"),
        ("docs/evidence/fuzz.json", None),
        ("examples/spark_join.py", "examples/spark_join.md"),
        ("src/oncelog/core/limits.py", None),
    ],
)
def test_a_file_of_the_checkout_has_its_page_or_none(path: str, page: str | None) -> None:
    assert site_path(path) == page
