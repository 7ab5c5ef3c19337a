"""The command line: a command parses its options, calls the library and prints the result.

Each command has a module in `commands`. Their work is in `detect` (tables), `series` (tables watched as time series)
and `watch` (streams); the other modules are shared. Slow imports happen inside the commands, so that `--help` is fast.
"""
