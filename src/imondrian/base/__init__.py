"""What every other package may use: errors, option types, defaults, locks, files, categories as numbers."""
