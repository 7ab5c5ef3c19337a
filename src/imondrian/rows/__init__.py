"""Rows as users pass them (arrays, data frames, dictionaries, with text and gaps) as points."""
