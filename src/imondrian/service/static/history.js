// The latest rows of a detector, in columns.

const COLUMNS = ["index", "time", "values", "anomaly_score", "threshold", "is_anomaly"];
const N_KEPT = 2000;

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
    const first = Math.max(this.length + rows.index.length - N_KEPT, 0);
    for (const name of COLUMNS) this[name] = this[name].concat(rows[name]).slice(first);
  }

  anomalies() {
    return this.is_anomaly.flatMap((isOdd, place) => (isOdd ? [place] : []));
  }
}
