"""Links from documents to files of the repository, and the pages of the site that show these files."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {  # documents in the root of the repository, and their pages
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)(?=#[^)]*\)|\))")


def with_site_links(text: str, name: str, page: str) -> str:
    """Replace the targets of links to files of the repository by their pages on the site.

    `name` is the path of the document in the repository, and `page` that of its page on the site.
    """

    def replaced(match: re.Match[str]) -> str:
        target = _target(match[1], name)
        if target is None:
            return match[1]
        return posixpath.relpath(_page_of(target), posixpath.dirname(page))

    return _LINK.sub(replaced, text)


def linked_files() -> dict[str, str]:
    """Return the files and folders outside `docs` that documents link to, except PAGES, each with its page."""
    documents = [*(ROOT / name for name in PAGES), *DOCS.rglob("*.md")]
    found: dict[str, str] = {}
    for document in documents:
        name = document.relative_to(ROOT).as_posix()
        for link in _LINK.findall(document.read_text()):
            target = _target(link, name)
            if target is not None and _page_of(target).startswith("files/"):
                found[target] = _page_of(target)
    return found


def _target(link: str, name: str) -> str | None:
    """Return the path in the repository of the target of a link, or None if it does not exist."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    return target if not target.startswith("..") and (ROOT / target).exists() else None


def _page_of(target: str) -> str:
    """Return the path on the site of a file or folder of the repository."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/") and (ROOT / target).is_file():
        return target.removeprefix("docs/")
    return f"files/{target}.md"
