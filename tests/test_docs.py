"""Every file, link, command, option and public name in the documents exists, and the documents are complete."""

import json
import re
import shlex
import zipfile
from pathlib import Path

import click
import numpy as np
import pytest

import imondrian
from imondrian import MondrianForest
from imondrian.cli.app import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DECISIONS = ROOT / "docs" / "decisions"


def name_of(document):
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(document):
    for target, _, heading in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", document.read_text()):
        file = document.parent / target if target else document
        assert file.exists(), target
        assert not heading or heading in anchors_in(file), (target, heading)


def anchors_in(document):
    """Return the anchors of the headings of a document, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_named_files_and_make_targets_exist(document):
    text = document.read_text()
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)`?", " ".join(re.findall(r"`make \w+`|^make \w+", text, re.MULTILINE))):
        assert f"\n{target}:" in targets, target
    for name in re.findall(r"`((?:engine|tests|examples|benchmarks|docs)/[\w/.-]+)`", text):
        assert any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "imondrian")), name


def commands_in(document):
    """Yield the words of every `imondrian` command in the shell examples of the document."""
    for block in re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL):
        for command in re.findall(r"(?:^|\| *)imondrian ([^|\n#]*)", block, re.MULTILINE):
            yield shlex.split(re.split("[<>]", command)[0])


def test_the_documents_show_every_command():
    shown = {words[0] for document in DOCUMENTS for words in commands_in(document)}
    assert shown == set(app.commands)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_shown_commands_can_be_parsed(document):
    for words in commands_in(document):
        command, name = app, "imondrian"
        while isinstance(command, click.Group):
            name = words.pop(0)
            command = command.commands[name]
        command.make_context(name, words).close()


def test_named_options_exist():
    parameters = [parameter for command in all_commands(app) for parameter in command.params]
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    for document in DOCUMENTS:
        for option in re.findall(r"`(--[a-z][a-z-]+)", document.read_text()):
            assert option in options | {"--help"}, (document.name, option)


def all_commands(group):
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from all_commands(command)
        else:
            yield command


def test_the_list_of_modules_is_complete():
    text, package = (ROOT / "docs" / "modules.md").read_text(), ROOT / "src" / "imondrian"
    for module in package.rglob("[a-z]*.py"):
        assert f"`{module.relative_to(package)}`" in text, module


def test_decisions_are_numbered_and_in_the_index():
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [page.name[:3] for page in pages] == [f"{i:03d}" for i in range(1, len(pages) + 1)]
    index = (DECISIONS / "README.md").read_text()
    for page in pages:
        number, title = re.match(r"# (\d{3})\. (.+)", page.read_text()).groups()
        assert f"- [{number}]({page.name}) {title}\n" in index


def test_the_page_on_the_file_format_names_every_member_and_header_entry(tmp_path):
    text = (ROOT / "docs" / "file-format.md").read_text()
    imondrian.save(MondrianForest(n_trees=2).build(np.eye(3)), tmp_path / "model.imf")
    with zipfile.ZipFile(tmp_path / "model.imf") as archive:
        names, header = archive.namelist(), json.loads(archive.read("header.json"))
    for name in names:
        record, _, column = name.removesuffix(".npy").partition(".")
        assert f"`{name}`" in text or (f"`{record}.*.npy`" in text and f"`{column}`" in text), name
    for entry in header:
        assert f"`{entry}`" in text, entry


@pytest.mark.parametrize("name", imondrian.__all__)
def test_every_public_name_is_documented(name):
    assert any(f"`{name}" in text or f"imondrian.{name}" in text for text in (path.read_text() for path in DOCUMENTS))


def test_the_readme_or_the_changelog_names_the_forest_save_and_load():
    text = (ROOT / "README.md").read_text() + (ROOT / "CHANGELOG.md").read_text()
    for name in ("MondrianForest", "save", "load"):
        assert name in text
