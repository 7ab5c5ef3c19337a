"""Storage: the SQLite database and what it contains, such as journals, snapshots, events and the latest rows."""
