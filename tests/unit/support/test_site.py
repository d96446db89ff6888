"""The site of the documentation builds from the files of the checkout, without a warning."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.site import ROOT, marked_tables, site_path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a broken link, a missing anchor or a page that the menu leaves out is an error."""
    pytest.importorskip("pyspark")  # The page of the API tells of it.
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """What a page has that can be linked to, and what it links to or shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.targets.add(value)


@pytest.mark.slow
def test_every_link_anchor_and_picture_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path.read_text()) for path in site.rglob("index.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme:
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            file = file / "index.html" if file.is_dir() else file
            is_there = file.exists() and (
                file not in pages or not link.fragment or unquote(link.fragment) in pages[file].ids
            )
            if not is_there:
                broken.append(f"{path.relative_to(site)}: {target}")
    assert not broken


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere_when_a_page_is_read(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = [line for line in path.read_text().splitlines() if "<script" in line]
        assert not [line for line in loaded if 'src="http' in line], path


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
        ("examples/spark_join.py", "examples/spark_join.md"),
        ("src/oncelog/core/limits.py", None),
    ],
)
def test_a_file_of_the_checkout_has_its_page_or_none(path: str, page: str | None) -> None:
    assert site_path(path) == page


HEAD = "<table>\n<thead>\n<tr>\n<th>{}</th>\n<th>{}</th>\n</tr>\n</thead>\n<tbody>\n"
ROW = '<tr>\n<td>{}</td>\n<td style="text-align: right;">{}</td>\n</tr>\n'


def test_a_table_tells_what_it_is_and_each_cell_its_column() -> None:
    name = "<code>a.long.name.of.a.setting</code>"
    table = HEAD.format("key", "meaning") + ROW.format(name, "word " * 10) + "</tbody>\n</table>"
    made = marked_tables(table)
    assert '<table data-kind="prose">' in made
    assert "<th>meaning</th>" in made
    assert '<td data-label="key"><code>a.<wbr>long.<wbr>name.<wbr>of.<wbr>a.<wbr>setting' in made
    assert '<td style="text-align: right;" data-label="meaning">word' in made


def test_a_table_of_figures_is_no_text() -> None:
    first = "a row with a name of more than forty characters"
    made = marked_tables(HEAD.format("", "a") + ROW.format(first, "12") + "</tbody>\n</table>")
    assert '<table data-kind="figures">' in made
    assert f"<td>{first}</td>" in made
    assert 'data-label="a">12</td>' in made
