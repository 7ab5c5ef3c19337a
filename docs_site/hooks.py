"""Hooks of MkDocs: documents outside `docs`, generated references, and links that also work on a code hosting site.

The pages in `docs` are read in two places. On a code hosting site they link to files of the repository, such as
`../CHANGELOG.md` or `../examples/transactions.py`. On the site that MkDocs builds, each linked file becomes a page. A
comment such as `<!-- generated: command line -->` is replaced by the generated reference of this name.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from command_line_page import command_line
from http_page import http_routes
from repository_links import DOCS, PAGES, ROOT, linked_files, with_site_links
from source_pages import page_of_source

GENERATED = {"command line": command_line, "http": http_routes}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Derive anchors as GitHub does, and add the decisions to the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    decisions = sorted(DOCS.glob("decisions/[0-9]*.md"))
    section = next(item for item in _section(config.nav, "Project") if "Decisions" in item)["Decisions"]
    section += [{_title(path): path.relative_to(DOCS).as_posix()} for path in decisions]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents in the root of the repository, and a page for each file that a document links to."""
    for name, page in PAGES.items():
        if page not in files.src_uris:
            text = with_site_links((ROOT / name).read_text(), name, page)
            files.append(File.generated(config, page, content=text))
    for name, page in linked_files().items():
        files.append(File.generated(config, page, content=page_of_source(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Insert the generated references, and replace links to files outside `docs`."""
    uri = page.file.src_uri
    if page.file.generated_by is None:
        markdown = with_site_links(markdown, f"docs/{uri}", uri)
    markdown = re.sub(r"<!-- generated: ([\w ]+) -->", lambda match: GENERATED[match[1]](), markdown)
    return re.sub(r"```python\n(?=>>> )", "```pycon\n", markdown)


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading, as GitHub derives it; `tests/test_docs.py` uses the same rule."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def _section(nav: Any, title: str) -> list[Any]:
    return next(item[title] for item in nav if title in item)


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ").replace("`", "")
