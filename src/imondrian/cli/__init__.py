"""The command line: a command parses its options, calls the library and prints the result.

The commands are in `commands`. Parts of their work that need modules of their own are in `detect` (tables), `series`
(tables watched as time series) and `watch` (streams); the other modules are shared. Slow imports happen inside the
commands, so that `--help` is fast.
"""
