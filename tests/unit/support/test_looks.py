"""What a browser says of pages that can be read, and of pages that cannot."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.looks.__main__ import Look, broken_links, looks, pages_of, served
from tests.support.looks.browser import Browser, chromium

HEAD = "<!doctype html><meta name='viewport' content='width=device-width'><body><main>"
PAGES = {
    "": f"{HEAD}<p id='there'>Plain.</p>",
    "faint": f"{HEAD}<p style='color: #999'>Grey on white.</p>",
    "wide": f"{HEAD}<p style='width: 2000px'>Far.</p>",
    "cut": f"{HEAD}<div style='overflow: hidden; width: 200px'><table><tr>"
    "<td style='min-width: 500px'>text</td></tr></table></div>",
    "strip": f"{HEAD}<table style='line-height: 20px'><tr><td style='width: 1em'>"
    f"{'<br>'.join(['a'] * 60)}</td></tr></table>",
    "scrolls": f"{HEAD}<div style='overflow: auto; width: 200px'><table><tr>"
    "<td style='min-width: 500px'>text</td></tr></table></div>",
}
FINDINGS = {"faint": "faint: ", "wide": "scrolls sideways", "cut": "cut at ", "strip": "lines: "}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in PAGES.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "index.html").write_text(text)
    return tmp_path


@pytest.fixture
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on the PATH")
    with Browser(program) as opened:
        yield opened


@pytest.mark.soak
def test_what_a_reader_could_not_read_is_found(site: Path, browser: Browser) -> None:
    with served(site) as address:
        seen = list(looks(browser, address, pages_of(site), site))
    for page in PAGES:
        found = [what for look in seen if look.page.strip("/") == page for what in look.findings]
        if page in FINDINGS:
            assert any(FINDINGS[page] in what for what in found), page
        else:
            assert found == []
    assert (site / "cut-phone-dark.png").stat().st_size > 1000


def test_a_link_that_leads_nowhere_is_found(site: Path) -> None:
    address = "http://127.0.0.1:1/"
    targets = ("faint/", "#there", "faint/#there", "missing/", "wide/index.html")
    links = frozenset({*(address + target for target in targets), "https://elsewhere.example/"})
    first = Look("", "wide", "light", (), frozenset({"there"}), links)
    other = [Look(page, "wide", "light", (), frozenset(), frozenset()) for page in pages_of(site)]
    assert broken_links([*other, first], address, site) == [
        "index: faint/#there leads nowhere",
        "index: missing/ leads nowhere",
    ]
