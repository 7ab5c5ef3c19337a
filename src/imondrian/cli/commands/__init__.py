"""The work of the commands, a file each; the options are parsed in `app`."""
