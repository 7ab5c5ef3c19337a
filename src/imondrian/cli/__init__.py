"""The command line: a command parses, calls and prints, and a file has one command.

Whatever takes long to import is imported inside of the commands, so that `--help` answers at once.
"""
