"""The documentation site: every page is in the navigation, and the reference is complete. `make docs` checks links."""

import importlib
import re
import sys
from pathlib import Path

import click
import pytest

import imondrian
import imondrian.datasets
import imondrian.plots
from imondrian.cli.app import app
from imondrian.service.http import metrics

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = "".join(path.read_text() for path in sorted(DOCS.glob("reference/*.md")))
QUESTIONS = (
    "How do I score new rows?",
    "Why was this flagged?",
    "How do I stop getting so many alarms?",
    "How do I run it for 10,000 hosts?",
    "What happens when the disk is full?",
    "Can I use it from Java?",
)


@pytest.fixture(scope="module")
def site_module():
    """Return a function that imports a module of the folder `docs_site`."""
    sys.path.insert(0, str(ROOT / "docs_site"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "docs_site"))


def test_every_page_is_in_the_navigation(site_module):
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/-]+\.md$", navigation, re.MULTILINE))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}  # added by a hook
    generated = set(site_module("repository_links").PAGES.values())
    assert named == (pages - decisions) | generated


@pytest.mark.parametrize("module", [imondrian, imondrian.plots, imondrian.datasets], ids=lambda each: each.__name__)
def test_the_reference_has_every_public_name(module):
    for name in module.__all__:
        assert f"::: {module.__name__}.{name}\n" in REFERENCE, name


def test_the_reference_has_every_adapter():
    names = ("river.IsolationMondrianForest", "pyod.IMForest", "onnx.export", "service.client.Client")
    spark = re.findall(r'^    "(\w+)",$', (ROOT / "src/imondrian/spark/__init__.py").read_text(), re.MULTILINE)
    assert spark
    for name in (*names, *(f"spark.{each}" for each in spark)):
        assert f"::: imondrian.{name}\n" in REFERENCE, name


def test_the_page_of_the_command_line_has_every_command_and_option(site_module):
    page = site_module("command_line_page")
    text = page.command_line()
    for context in page.contexts(app, "imondrian"):
        assert f"## {context.command_path}\n" in text
        for parameter in context.command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0] in text


def test_the_page_of_the_service_has_every_route_and_object(site_module):
    text = site_module("http_page").http_routes()
    api = description_of_routes()
    for path, operations in api["paths"].items():
        for method in operations:
            assert f"### {method.upper()} {path}\n" in text
    for name in api["components"]["schemas"]:
        assert f"### {name}\n" in text


def description_of_routes():
    asgi = importlib.import_module("imondrian.service.http.asgi")
    return asgi.create_api(None).openapi()


def test_the_page_of_metrics_has_every_metric():
    text = (DOCS / "reference" / "metrics.md").read_text()
    tables = (metrics._METRICS, metrics._SERIES_METRICS, metrics._NOTIFICATION_METRICS)
    for name, (kind, meaning, _) in (item for table in tables for item in table.items()):
        assert f"| `imondrian_{name}` | {kind} | {meaning} |" in text
    for name in re.findall(r"# TYPE (imondrian_\w+) ", Path(metrics.__file__).read_text()):
        assert f"| `{name}` |" in text


def test_links_to_files_outside_docs_lead_to_pages(site_module):
    links = site_module("repository_links")
    text = "[a](../CHANGELOG.md#b) [c](../examples/demo.py) [d](streams.md#e) [f](https://example.org) [g](#h)"
    replaced = "[a](changelog.md#b) [c](files/examples/demo.py.md) [d](streams.md#e) [f](https://example.org) [g](#h)"
    assert links.with_site_links(text, "docs/fleet.md", "fleet.md") == replaced
    assert (
        links.with_site_links("[a](../tables.md)", "docs/decisions/001.md", "decisions/001.md") == "[a](../tables.md)"
    )
    assert links.with_site_links("[a](docs/fleet.md)", "CHANGELOG.md", "changelog.md") == "[a](fleet.md)"


def test_the_start_page_links_to_the_answers_of_common_questions():
    start, answers = (DOCS / "index.md").read_text(), (DOCS / "questions.md").read_text()
    for question in QUESTIONS:
        assert f"[{question}](questions.md#" in start
        assert f"\n## {question}\n" in answers
