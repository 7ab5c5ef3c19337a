"""Print the lowest version of every package that pyproject.toml declares, as requirements for pip.

python packaging/lowest_versions.py [EXTRA ...]  (without extras: only the dependencies of the library)
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?(?:>=([\w.]+))?.*")


def lowest_versions(extras: Iterable[str]) -> dict[str, str]:
    """Return the lowest declared version of each package that the library and these extras need."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    versions: dict[str, str] = {}
    for name, version in _requirements(project, project["dependencies"], extras):
        if versions.setdefault(name, version) != version:
            raise SystemExit(f"{name} has two lowest versions in pyproject.toml: {versions[name]} and {version}.")
    return versions


def _requirements(project: dict, requirements: list[str], extras: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and lowest versions, following references such as imondrian[cli]."""
    for text in requirements:
        name, references, version = _REQUIREMENT.fullmatch(text).groups()
        if name == project["name"]:
            yield from _requirements(project, [], references.split(","))
        elif version is None:
            raise SystemExit(f"{text!r} in pyproject.toml has no lowest version.")
        else:
            yield name, version
    for extra in extras:
        yield from _requirements(project, project["optional-dependencies"][extra], ())


if __name__ == "__main__":
    for name, version in sorted(lowest_versions(sys.argv[1:]).items()):
        sys.stdout.write(f"{name}=={version}\n")
