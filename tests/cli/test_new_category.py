"""A row whose only oddity is a category that no other row has is among the oddest rows, and is explained by it."""

import json

import numpy as np
import polars as pl
from click.testing import CliRunner

from imondrian.cli.app import app

N_ROWS, N_PLANTED = 2_000, 40


def table_with_new_category(seed):
    """Return a table of up to ten ordinary features, the odd row, and the feature that makes it odd.

    In the other features, the odd row has the median or the most common category.
    """
    rng = np.random.default_rng(seed)
    n_numbers = int(rng.integers(0, 6))
    n_categories = int(rng.integers(1, 11 - n_numbers))
    row, odd = int(rng.integers(N_ROWS)), f"c{rng.integers(n_categories)}"
    columns = {}
    for j in range(n_numbers):
        values = (rng.normal(size=N_ROWS), rng.lognormal(0.0, 0.7, N_ROWS), rng.uniform(size=N_ROWS))[j % 3]
        values[row] = np.median(values)
        columns[f"x{j}"] = values.round(4)
    for j in range(n_categories):
        shares = rng.dirichlet(np.full(rng.integers(2, 8), 5.0))
        values = rng.choice([f"v{i}" for i in range(len(shares))], N_ROWS, p=shares).tolist()
        values[row] = "new" if f"c{j}" == odd else f"v{shares.argmax()}"
        columns[f"c{j}"] = values
    return pl.DataFrame(columns), row, odd


def test_a_new_category_is_found_and_explained(tmp_path):
    n_found = 0
    for seed in range(N_PLANTED):
        frame, row, odd = table_with_new_category(seed)
        frame.write_csv(tmp_path / "table.csv")
        done = CliRunner().invoke(app, ["detect", str(tmp_path / "table.csv"), "--top", str(N_ROWS // 100), "--json"])
        found = {found["row"]: found["explanation"][0] for found in json.loads(done.stdout)["highest"]}
        n_found += row + 1 in found and found[row + 1]["feature"] == odd
    assert n_found >= 0.95 * N_PLANTED
