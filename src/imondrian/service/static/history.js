// The latest rows of a detector, by column.

const COLUMNS = ["index", "time", "own_time", "values", "anomaly_score", "threshold", "is_anomaly"];
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
    for (const name of COLUMNS) this[name] = this[name].concat(rows[name]).slice(first);
  }

  anomalies() {
    return this.is_anomaly.flatMap((isAnomaly, position) => (isAnomaly ? [position] : []));
  }
}
