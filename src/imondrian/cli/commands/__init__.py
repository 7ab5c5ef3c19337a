"""The implementation of the commands; their options are parsed in `app`."""
