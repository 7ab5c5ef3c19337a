"""Every command and option has a help text, and `--help` imports no slow module."""

import subprocess
import sys

import click
import pytest

import imondrian
from imondrian.cli import options
from imondrian.cli.app import app
from imondrian.tables.missing import MISSING


def commands(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "command"), list(commands(app)), ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_and_option_has_a_help_text(path, command):
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, (path, parameter.name)


def test_every_command_exists():
    names = {" ".join(path) for path, _ in commands(app)}
    assert {"detect", "fit", "score", "explain", "watch", "info"} <= names
    assert {f"plot {kind}" for kind in ("scores", "regions", "partition", "tree", "series")} <= names


def test_help_imports_no_slow_module():
    program = (
        "import sys; from imondrian.cli.app import app\n"
        "try: app(['detect', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'numba', 'sklearn', 'polars', 'matplotlib', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--fail-on-anomaly" in done.stdout


def test_the_option_for_missing_values_offers_every_rule():
    assert set(options.MISSING) == set(MISSING)


def test_a_missing_package_is_named():
    program = "import sys; sys.modules['click'] = None; from imondrian.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == 'imondrian: the command line needs click: pip install "imondrian[cli]"\n'


def test_version_and_usage_errors():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "imondrian", *arguments], capture_output=True, text=True, check=False
        )

    assert imondrian.__version__ in run("--version").stdout
    assert run("detect").returncode == 2
    assert "No such command" in run("nonsense").stderr
    assert run("detect", "x.csv", "--trees", "0").returncode == 2
