"""What is stored: the SQLite database, journals and snapshots, events, the latest rows."""
