"""The check of the links between the manual's pages, once these are written."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.targets.append(value)


def find_broken_links(folder: Path) -> Iterator[str]:
    """Yield every link between pages of a folder that leads nowhere, as PAGE: LINK."""
    pages = {
        path.resolve(): _Page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
        if "_static" not in path.parts
    }
    for path, page in pages.items():
        for target in page.targets:
            address = urlsplit(target)
            if address.scheme or address.netloc:
                continue
            other = (path.parent / unquote(address.path)).resolve() if address.path else path
            lost = address.fragment and other in pages
            if not other.exists() or (lost and address.fragment not in pages[other].anchors):
                yield f"{path.relative_to(folder.resolve())}: {target}"


def check_links(app: object, error: Exception | None) -> None:
    """Fail the build where a link is broken."""
    from sphinx.errors import SphinxError

    if error is None and (broken := list(find_broken_links(Path(app.outdir)))):  # type: ignore[attr-defined]
        raise SphinxError("Links that lead nowhere:\n" + "\n".join(broken))
