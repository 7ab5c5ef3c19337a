// The HTTP API of the service: one function for each request.

import { askForToken, token } from "./token_dialog.js";

const TIMEOUT = 120_000; // milliseconds
const READ_TIMEOUT = 30_000;
const MAX_RETRIES = 30; // while the service is busy
const UNREACHABLE = "The service cannot be reached.";

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const description = () => request("GET", "openapi.json");
export const detectors = () => request("GET", "detectors");
export const create = (name, configuration) => request("PUT", path(name), { body: configuration });
export const change = (name, settings) => request("PATCH", path(name), { body: settings });
export const incidents = () => request("GET", "incidents?limit=200");
export const remove = (name) => request("DELETE", path(name));
export const history = (name, after) => request("GET", `${path(name)}/history?after=${after}&limit=2000`);
export const explainRow = (name, index) => request("GET", `${path(name)}/history/${index}`);
export const scores = (name, points, signal) => request("POST", `${path(name)}/scores`, { body: { points }, signal });

export async function explainPoint(name, point) {
  const { explanations } = await request("POST", `${path(name)}/explanations`, { body: { points: [point] } });
  return explanations[0];
}

export function learn(name, points, signal) {
  const headers = { "Idempotency-Key": randomKey() }; // a repeated request is learned only once
  return request("POST", `${path(name)}/points`, { body: { points }, signal, headers });
}

export async function health() {
  const response = await send("GET", "health", {}); // a response with status 503 also contains problems
  return response.json().catch(() => ({ problems: [] }));
}

function path(name) {
  return `detectors/${encodeURIComponent(name)}`;
}

function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function request(method, address, options = {}) {
  for (let busy = 0; ; ) {
    const sent = token();
    const response = await send(method, address, options);
    if (response.status === 401) {
      if (!(await askForToken(sent))) throw new ApiError(401, "A token is required.");
    } else if (response.status === 429 && busy < MAX_RETRIES) {
      busy += 1;
      await wait((Number(response.headers.get("Retry-After")) || 1) * 1000, options.signal);
    } else {
      return read(response);
    }
  }
}

async function send(method, address, { body, signal, headers = {} }) {
  const all = { ...headers };
  if (token() !== null) all.Authorization = `Bearer ${token()}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(method === "GET" ? READ_TIMEOUT : TIMEOUT);
  const init = { method, headers: all, body: body && JSON.stringify(body), signal: signal ? AbortSignal.any([signal, limit]) : limit };
  try {
    return await fetch(address, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, UNREACHABLE);
  }
}

async function read(response) {
  if (response.status === 204) return null;
  const content = await response.json().catch(() => undefined);
  if (!response.ok) throw new ApiError(response.status, content?.detail ?? `The service returned status ${response.status}.`);
  if (content === undefined) throw new ApiError(0, UNREACHABLE);
  return content;
}

function wait(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}
