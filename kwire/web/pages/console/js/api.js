// Requests to the server. Every error is an ApiError with the server's code and message.
export class ApiError extends Error {
  constructor(message, { status = 0, code = "", details = {} } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}

// Listeners: `unauthorized` when a session has ended, `offline` and `online` when the server does (not) answer.
export const connection = new EventTarget();
let isOnline = true;

function setOnline(online) {
  if (online === isOnline) return;
  isOnline = online;
  connection.dispatchEvent(new Event(online ? "online" : "offline"));
}

export const get = (path, options) => send("GET", path, options);
export const post = (path, body, options) => send("POST", path, { ...options, body });
export const put = (path, body, options) => send("PUT", path, { ...options, body });
export const patch = (path, body, options) => send("PATCH", path, { ...options, body });
export const remove = (path, options) => send("DELETE", path, options);

// Reads a list that the server sends in pages: pagesOf("/users", "users", {limit: 1_000, max: 20_000, signal}). At most
// about `max` entries are read.
export async function pagesOf(path, name, { limit, max, signal }) {
  const found = [];
  let after;
  do {
    const page = await get(`${path}${query({ limit, after })}`, { signal });
    found.push(...page[name]);
    after = page.next;
  } while (after && found.length < max);
  return found;
}

// A request of Kafka's protocol as JSON: kafka("Metadata", {topics: null}) -> the response message. The errors in the
// response belong to single topics, groups and so on: `throwFirst` raises the first of them.
export function kafka(name, body, { version, ...options } = {}) {
  return post(`/kafka/${name}${query({ version })}`, body, options);
}

// Raises the first error of a response of Kafka's protocol, wherever it is in the message.
export function throwFirst(response) {
  const found = firstError(response);
  if (found) throw new ApiError(found.error_message || found.error, { code: found.error, details: found });
  return response;
}

function firstError(value) {
  if (value === null || typeof value !== "object") return null;
  if (!Array.isArray(value) && value.error_code) return value;
  for (const one of Object.values(value)) {
    const found = firstError(one);
    if (found) return found;
  }
  return null;
}

// The query string of an object. Missing values are left out, arrays are repeated.
export function query(values) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") parts.append(name, one);
  }
  const text = parts.toString();
  return text && `?${text}`;
}

// `parse` reads the JSON of the answer.
async function send(method, path, { body, signal, headers, parse = JSON.parse } = {}) {
  const answer = await request(method, path, { body, signal, headers });
  const text = await answer.text();
  if (!text) return null;
  return (answer.headers.get("Content-Type") ?? "").includes("json") ? parse(text) : text;
}

// Returns the Response of a successful request. Raises ApiError otherwise, AbortError if `signal` is aborted.
export async function request(method, path, { body, signal, headers } = {}) {
  const options = { method, signal, headers: { Accept: "application/json", ...headers }, credentials: "same-origin" };
  if (body !== undefined) {
    options.body = typeof body === "string" ? body : JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...options.headers };
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setOnline(false);
    throw new ApiError("The server does not answer.", { code: "NoAnswer" });
  }
  setOnline(true);
  if (answer.ok) return answer;
  const error = await errorOf(answer);
  if (error.status === 401 && path !== "/session") {
    connection.dispatchEvent(new Event("unauthorized"));
  }
  throw error;
}

async function errorOf(answer) {
  const text = await answer.text();
  try {
    const { error, error_code: code, message } = JSON.parse(text);
    // Errors of REST Proxy's routes have a number and a message only.
    if (!error && message) return new ApiError(message, { status: answer.status, code: String(code) });
    return new ApiError(error.message, { status: answer.status, code: error.code, details: error });
  } catch {
    return new ApiError(text || answer.statusText || `status ${answer.status}`, { status: answer.status });
  }
}

// Lines are read for at most this time before the browser may draw and handle events.
const SLICE_MS = 12;

// Reads a body of JSON lines, and calls `onLine` with each object as it arrives.
export async function lines(path, { signal, onLine, parse = JSON.parse }) {
  const answer = await request("GET", path, { signal, headers: { Accept: "application/x-ndjson" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let since = performance.now();
  while (true) {
    const { done, value } = await nextPart(reader);
    if (done) break;
    if (performance.now() - since > SLICE_MS) {
      await new Promise((resume) => setTimeout(resume));
      since = performance.now();
    }
    const complete = (rest + value).split("\n");
    rest = complete.pop();
    for (const line of complete) if (line) onLine(parse(line));
  }
  if (rest) onLine(parse(rest));
}

async function nextPart(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError("The connection to the server was lost.", { code: "NoAnswer" });
  }
}

export const isAborted = (error) => error?.name === "AbortError";
