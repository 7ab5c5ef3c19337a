"""Long text is shortened before it is displayed."""


def shortened(text: str, n_characters: int) -> str:
    """Return the text, or its first n_characters and three dots if it is longer.

    Examples
    --------
    >>> shortened("abcdef", 4), shortened("abcd", 4)
    ('abcd...', 'abcd')
    """
    return text if len(text) <= n_characters else f"{text[:n_characters]}..."
