"""Generate the reference of the command line from its parser."""

import html
import inspect
import re
from collections.abc import Iterator

import click

from imondrian.cli.app import app


def command_line() -> str:
    """Return a section for each command, with its arguments and options."""
    return "\n\n".join(_section(context) for context in contexts(app, "imondrian"))


def contexts(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield a context for each command that does work, in the order of `--help`."""
    context = click.Context(command, parent, name)
    if not isinstance(command, click.Group):
        yield context
        return
    for child in command.list_commands(context):
        yield from contexts(command.commands[child], child, context)


def _section(context: click.Context) -> str:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    records = [each.get_help_record(context) for each in context.command.get_params(context)]
    rows = [f"| {_names(names)} | {_cell(text)} |" for names, text in filter(None, records) if text]
    table = "\n".join(["| option | meaning |", "|---|---|", *rows])
    return f"## {context.command_path}\n\n{_help(context.command)}\n\n```text\n{usage}\n```\n\n{table}"


def _help(command: click.Command) -> str:
    return _plain(inspect.cleandoc(command.help or "").replace("\b\n", ""))


def _names(text: str) -> str:
    """Return the names and the values of an option as code; lines may break between values."""
    return f"<code>{html.escape(text).replace('|', '&#124;<wbr>')}</code>"


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Escape the characters that Markdown would interpret, and mark options as code."""
    text = re.sub(r"([*\[\]_])", r"\\\1", text).replace("<", "&lt;")
    return re.sub(r"(?<![\w-])--[a-z][a-z-]+", r'<code class="option">\g<0></code>', text)
