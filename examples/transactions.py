"""Card payments with numbers, categories and gaps: find the fraudulent ones, and say why each was flagged.

The data are generated with a fixed seed, and so are the 30 frauds, of three kinds. Real frauds are harder to find.

python examples/transactions.py
"""

import numpy as np
import polars as pl

from imondrian import IsolationMondrianForest

N_PAYMENTS, N_FRAUDS = 20_000, 30
SHOPS = {"grocery": 3.2, "fuel": 3.7, "travel": 5.5, "electronics": 5.0, "restaurant": 3.4}  # log of a usual amount
COUNTRIES = {"FR": 0.55, "DE": 0.2, "ES": 0.12, "IT": 0.1, "PT": 0.03}


def main() -> None:
    """Fit a forest on all payments, and compare its ranking with the frauds."""
    payments, is_fraud = generate_payments()
    model = IsolationMondrianForest(contamination="auto", random_state=0).fit(payments)  # text columns are categories
    scores, surprise = -model.score_samples(payments), model.surprise_samples(payments)
    ranking = np.argsort(-scores)
    by_amount = np.argsort(-payments["amount"].fill_null(0.0).to_numpy())
    print(f"{N_PAYMENTS:,} payments, {N_FRAUDS} of them fraudulent")
    print(f"frauds among the {N_FRAUDS} highest scores:  {is_fraud[ranking[:N_FRAUDS]].sum()}")
    print(f"frauds among the {N_FRAUDS} largest amounts: {is_fraud[by_amount[:N_FRAUDS]].sum()}")
    is_flagged = model.predict(payments) == -1
    print(f"flagged (surprise above 3): {is_flagged.sum()}, of which {is_fraud[is_flagged].sum()} are frauds\n")
    print("The five highest scores, and the feature with the largest part in each:")
    parts = model.explain(payments[ranking[:5].tolist()])
    for row, part in zip(ranking[:5], parts.iter_rows(named=True), strict=True):
        leading = max(part, key=lambda name: abs(part[name]))
        value = payments[leading][int(row)]
        share = abs(part[leading]) / scores[row]
        print(f"  payment {row:6,}  surprise {surprise[row]:.1f}  {leading} = {value} ({share:.0%} of the score)")


def generate_payments() -> tuple[pl.DataFrame, np.ndarray]:
    """Return payments, and which of them are frauds: a new country, a large amount, or an unusual combination."""
    rng = np.random.default_rng(0)
    shop = rng.choice(list(SHOPS), N_PAYMENTS, p=[0.4, 0.2, 0.05, 0.1, 0.25])
    country = rng.choice(list(COUNTRIES), N_PAYMENTS, p=list(COUNTRIES.values())).astype("<U2")
    amount = np.exp(rng.normal([SHOPS[name] for name in shop], 0.5))
    hour = rng.normal(15.0, 3.5, N_PAYMENTS).clip(0, 23).round()
    days = rng.exponential(3.0, N_PAYMENTS).round(1)
    frauds = rng.choice(N_PAYMENTS, N_FRAUDS, replace=False)
    country[frauds[:10]] = rng.choice(["KY", "PA", "VU"], 10)
    amount[frauds[10:20]] = rng.uniform(3_000, 9_000, 10)
    amount[frauds[20:]], hour[frauds[20:]], days[frauds[20:]] = rng.uniform(300, 500, 10), 3.0, 25.0
    columns = {"shop": shop, "country": country, "amount": amount.round(2), "hour": hour, "days_since_last": days}
    payments = pl.DataFrame(columns)
    is_missing = pl.Series(rng.random(N_PAYMENTS) < 0.05)  # the first payment of a card has no previous one
    is_fraud = np.zeros(N_PAYMENTS, bool)
    is_fraud[frauds] = True
    gaps = pl.when(is_missing).then(None).otherwise(pl.col("days_since_last")).alias("days_since_last")
    return payments.with_columns(gaps), is_fraud


if __name__ == "__main__":
    main()
