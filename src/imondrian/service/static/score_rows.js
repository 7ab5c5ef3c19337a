// Sends the rows of a table to the service, block by block, to score or to learn them.

import { learn, scores } from "./api.js";

const N_ROWS = 5000; // in a block
const N_CHARACTERS = 2 ** 23; // of JSON in a block

export async function scoreRows(name, points, { isLearning, signal, onProgress }) {
  const result = { scores: [], surprises: [], anomalies: [], indices: isLearning ? [] : null, threshold: null };
  for (let first = 0, end; first < points.length; first = end) {
    onProgress(first / points.length, first);
    end = endOfBlock(points, first);
    const block = points.slice(first, end);
    if (isLearning) addLearned(result, await learn(name, block, signal));
    else addScored(result, await scores(name, block, signal));
  }
  return result;
}

function endOfBlock(points, first) {
  let end = first;
  for (let length = 0; end < Math.min(first + N_ROWS, points.length) && length < N_CHARACTERS; end += 1) length += JSON.stringify(points[end]).length;
  return end;
}

function addScored(result, reply) {
  result.threshold = reply.threshold;
  result.surprises.push(...reply.surprise);
  for (const score of reply.anomaly_score) {
    result.scores.push(score);
    result.anomalies.push(reply.threshold !== null && score > reply.threshold);
  }
}

function addLearned(result, reply) {
  for (const { index, anomaly_score: score, surprise, threshold, is_anomaly: isAnomaly } of reply.results) {
    result.indices.push(index);
    result.scores.push(score);
    result.surprises.push(surprise);
    result.anomalies.push(isAnomaly);
    result.threshold = threshold;
  }
}
