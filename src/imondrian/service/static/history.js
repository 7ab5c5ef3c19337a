// The latest rows of a detector, by column.

const COLUMNS = ["index", "time", "own_time", "values", "anomaly_score", "surprise", "threshold", "is_anomaly", "incident", "expected_low", "expected_high"]; // only time series have the last two
const MAX_ROWS = 2000;

export class History {
  constructor() {
    for (const name of COLUMNS) this[name] = [];
  }

  get length() {
    return this.index.length;
  }

  get last() {
    return this.index.at(-1) ?? -1;
  }

  add(rows) {
    const first = Math.max(this.length + rows.index.length - MAX_ROWS, 0);
    for (const name of COLUMNS) this[name] = this[name].concat(rows[name] ?? []).slice(first);
  }

  incidents() {
    const spans = []; // first and last row of each incident
    this.incident.forEach((number, position) => {
      const index = this.index[position];
      if (number === null) return;
      if (position > 0 && this.incident[position - 1] === number) spans.at(-1).last = index;
      else spans.push({ number, first: index, last: index });
    });
    return spans;
  }

  anomalies() {
    return this.is_anomaly.flatMap((isAnomaly, position) => (isAnomaly ? [position] : []));
  }
}
