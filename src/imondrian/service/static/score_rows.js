// Sends the rows of a table to the service, block by block, to score or to learn them.

import { learn, scores } from "./api.js";

const N_ROWS = 5000; // in a block
const N_CELLS = 1_000_000;

export async function scoreRows(name, points, { isLearning, signal, onProgress }) {
  const result = { scores: [], anomalies: [], indices: isLearning ? [] : null, threshold: null };
  const size = Math.max(1, Math.min(N_ROWS, Math.floor(N_CELLS / points[0].length)));
  for (let first = 0; first < points.length; first += size) {
    onProgress(first / points.length, first);
    const block = points.slice(first, first + size);
    if (isLearning) addLearned(result, await learn(name, block, signal));
    else addScored(result, await scores(name, block, signal));
  }
  return result;
}

function addScored(result, reply) {
  result.threshold = reply.threshold;
  for (const score of reply.anomaly_score) {
    result.scores.push(score);
    result.anomalies.push(reply.threshold !== null && score > reply.threshold);
  }
}

function addLearned(result, reply) {
  for (const { index, anomaly_score: score, threshold, is_anomaly: isAnomaly } of reply.results) {
    result.indices.push(index);
    result.scores.push(score);
    result.anomalies.push(isAnomaly);
    result.threshold = threshold;
  }
}
