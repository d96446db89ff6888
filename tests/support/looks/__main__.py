"""Build the site, open each page at two widths and in both colour schemes, and print findings."""

import argparse
import base64
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urldefrag

from tests.support.looks.browser import Browser, chromium

__all__ = ["SKIPPED", "Look", "broken_links", "looks", "main"]

ROOT: Final = Path(__file__).resolve().parents[3]
WIDTHS: Final = {"wide": 1400, "phone": 390}
HEIGHT: Final = 900
SCHEMES: Final = {"light": "default", "dark": "slate"}
"""What the theme calls them."""
LINES_MAX: Final = {"wide": 20, "phone": 40}
"""Of one cell of a table: beyond it a column is too narrow for its text."""
SKIPPED: Final = 77
"""The exit code where there is no browser, as Automake's tests have it."""
_SCRIPT: Final = (Path(__file__).parent / "look.js").read_text()
_STILL: Final = """
document.head.insertAdjacentHTML("beforeend", "<style>* { transition: none !important }</style>")
"""
_SETTLED: Final = (
    "document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => 0)"
)


class Look(NamedTuple):
    """A page as one reader sees it."""

    page: str
    """Its path in the site, as `spark/`; "" is the first one."""
    width: str
    scheme: str
    findings: tuple[str, ...]
    ids: frozenset[str]
    links: frozenset[str]

    @property
    def name(self) -> str:
        """Of its picture."""
        return f"{self.page.strip('/').replace('/', '-') or 'index'}-{self.width}-{self.scheme}"


def pages_of(site: Path) -> list[str]:
    """The paths of a site's pages."""
    found = sorted(path.parent.relative_to(site).as_posix() for path in site.rglob("index.html"))
    return ["" if page == "." else f"{page}/" for page in found]


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a folder's files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def looks(
    browser: Browser, address: str, pages: list[str], pictures: Path | None
) -> Iterator[Look]:
    """Each page at each width, in each scheme."""
    for width, pixels in WIDTHS.items():
        is_phone = width == "phone"
        browser.ask(
            "Emulation.setDeviceMetricsOverride",
            width=pixels,
            height=HEIGHT,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        script = f"({_SCRIPT.replace('LINES_MAX', str(LINES_MAX[width]))})()"
        for page in pages:
            browser.open(address + page)
            browser.run(_STILL)
            for scheme, attribute in SCHEMES.items():
                browser.run(f'document.body.setAttribute("data-md-color-scheme", "{attribute}")')
                browser.run(_SETTLED)
                seen = browser.run(script)
                findings = (
                    *(f"scrolls sideways: {what}" for what in seen["wide"]),
                    *seen["tables"],
                    *(f"faint: {what}" for what in seen["faint"]),
                )
                ids, links = frozenset(seen["ids"]), frozenset(seen["links"])
                look = Look(page, width, scheme, findings, ids, links)
                if pictures is not None:
                    shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True)
                    (pictures / f"{look.name}.png").write_bytes(base64.b64decode(shot["data"]))
                yield look


def broken_links(seen: list[Look], address: str, site: Path) -> list[str]:
    """Links into the site that lead to no file of it, or to no place in a page."""
    ids: dict[str, frozenset[str]] = {}
    for look in seen:
        ids[look.page] = ids.get(look.page, frozenset()) | look.ids
    found = set()
    for look in seen:
        for link in look.links:
            url, fragment = urldefrag(link)
            if not url.startswith(address):
                continue
            path = unquote(url.removeprefix(address)).removesuffix("index.html")
            is_there = path in ids or (site / path).is_file()
            if not is_there or (fragment and unquote(fragment) not in ids.get(path, ())):
                found.add(f"{look.page or 'index'}: {link.removeprefix(address)} leads nowhere")
    return sorted(found)


def main() -> int:
    """Exit code 0 if all can be read, 1 if not, `SKIPPED` without a browser."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.support.looks")
    parser.add_argument("--pictures", type=Path, help="a folder for what each page looks like")
    parser.add_argument("--only", default="", help="a regular expression of pages, as 'spark|cli'")
    arguments = parser.parse_args()
    program = chromium()
    if program is None:
        print("skipped: no Chromium on the PATH, and CHROMIUM names none")
        return SKIPPED
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="oncelog-site-") as folder:
        site = Path(folder)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
        subprocess.run([*command, "--site-dir", folder], cwd=ROOT, check=True)
        pages = [page for page in pages_of(site) if re.search(arguments.only, page)]
        with served(site) as address, Browser(program) as browser:
            seen = list(looks(browser, address, pages, arguments.pictures))
        found = [f"{look.name}: {what}" for look in seen for what in look.findings]
        if not arguments.only:
            found += broken_links(seen, address, site)
    print("\n".join(found) or f"{len(pages)} pages, each seen in {len(WIDTHS) * 2} ways: readable")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
