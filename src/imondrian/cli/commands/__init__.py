"""The work of the commands; the options are parsed in `app`."""
