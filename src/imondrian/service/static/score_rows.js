// Sends the rows of a table to the service, block by block, to score or to learn them.

import { learn, scores } from "./api.js";

const N_ROWS = 5000; // in a block
const N_CELLS = 1_000_000;

export async function scoreRows(name, points, { isLearning, signal, onProgress }) {
  const found = { scores: [], anomalies: [], indices: isLearning ? [] : null, threshold: null };
  const size = Math.max(1, Math.min(N_ROWS, Math.floor(N_CELLS / points[0].length)));
  for (let first = 0; first < points.length; first += size) {
    onProgress(first / points.length, first);
    const block = points.slice(first, first + size);
    if (isLearning) addLearned(found, await learn(name, block, signal));
    else addScored(found, await scores(name, block, signal));
  }
  return found;
}

function addScored(found, answer) {
  found.threshold = answer.threshold;
  for (const score of answer.anomaly_score) {
    found.scores.push(score);
    found.anomalies.push(answer.threshold !== null && score > answer.threshold);
  }
}

function addLearned(found, answer) {
  for (const { index, anomaly_score: score, threshold, is_anomaly: isAnomaly } of answer.results) {
    found.indices.push(index);
    found.scores.push(score);
    found.anomalies.push(isAnomaly);
    found.threshold = threshold;
  }
}
