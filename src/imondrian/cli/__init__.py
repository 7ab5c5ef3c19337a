"""The command line: a command parses its options, calls the library and prints the result.

Slow imports happen inside the commands, so that `--help` is fast.
"""
