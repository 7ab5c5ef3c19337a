"""Rows with text, booleans, codes and gaps, as tuples for Spark and as a data frame for one machine."""

from decimal import Decimal

import numpy as np
import pandas as pd

MIXED = ["country", "paid", "code", "amount", "price", "ratio"]
CATEGORICAL = [0, 1, 2]
MIXED_SCHEMA = (
    "id long, key int, country string, paid boolean, code int, amount double, price decimal(10, 2), ratio float"
)
COUNTRIES = ["FR", "DE", "fr", "Österreich", "", "3", None]


def mixed_rows(n=400):
    """Rows with copies, rare categories, and gaps that are null or NaN."""
    rng, rows = np.random.default_rng(8), []
    for _ in range(n):
        country = COUNTRIES[min(rng.geometric(0.4), len(COUNTRIES)) - 1]
        paid, code = [True, False, None][rng.choice(3, p=[0.6, 0.3, 0.1])], [10, 20, 30, None][rng.integers(4)]
        amount = [round(float(rng.normal()), 1), None, float("nan")][rng.choice(3, p=[0.8, 0.1, 0.1])]
        price = None if rng.random() < 0.2 else Decimal(int(rng.integers(1, 900))) / 100
        rows.append((country, paid, code, amount, price, float(np.float32(rng.random()))))
    rows[1::10] = [("FR", True, None, None, Decimal("2.50"), 0.5)] * len(rows[1::10])
    rows[17] = ("KP", False, 30, 9.0, Decimal("6.18"), 0.25)
    return [(i, i % 3, *row) for i, row in enumerate(rows)]


def mixed_table(rows):
    """Return the features as a data frame, made without Spark."""
    table = pd.DataFrame([row[2:] for row in rows], columns=MIXED, dtype=object)
    return table.assign(amount=table["amount"].astype(float), ratio=table["ratio"].astype(np.float32))
