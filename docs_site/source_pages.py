"""Pages that show a file of the repository: a script, a notebook, a configuration, or a folder."""

import json
from pathlib import Path

_HEAD = "---\ntitle: {title}\nsearch:\n  exclude: true\n---\n\n"
_LANGUAGES = {".py": "python", ".service": "ini", ".conf": "nginx", ".yml": "yaml", ".toml": "toml"}


def page_of_source(path: Path) -> str:
    """Return a page with the contents of a file."""
    head = _HEAD.format(title=path.name)
    if path.is_dir():
        return head + _list_of_files(path)
    if path.suffix == ".ipynb":
        return head + _cells_of_notebook(path)
    language = "dockerfile" if path.name == "Dockerfile" else _LANGUAGES.get(path.suffix, "text")
    return f"{head}# `{path.parent.name}/{path.name}`\n\n{_fenced(path.read_text(), language)}"


def _cells_of_notebook(path: Path) -> str:
    cells = json.loads(path.read_text())["cells"]
    texts = [
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else _fenced("".join(cell["source"]), "python")
        for cell in cells
    ]
    return "\n\n".join(texts)


def _list_of_files(path: Path) -> str:
    names = sorted(file.name for file in path.iterdir() if file.is_file())
    return f"# `{path.name}`\n\n" + "\n".join(f"- `{name}`" for name in names)


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"
