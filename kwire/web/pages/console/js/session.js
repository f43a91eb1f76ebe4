// Who uses the console, and what the session may do.
import { get, post, remove } from "./api.js";

// The answer of GET /session.
export const session = { principal: null, kind: "anonymous", login_needed: false, login_methods: [], scope: null, role: null, has_acls: false, password_length_min: 1, reads_audit: false, cluster_operations: [], topic_operations: [] };

// The answer of GET /about: whether a server or a bridge answers, and which routes it does not serve.
export const about = { version: "", engine: "server", upstream: null, not_served: [] };

export async function loadSession() {
  Object.assign(session, await get("/session"));
  if (!needsLogin()) Object.assign(about, await get("/about"));
  return session;
}

// `token` is the token of an API key; otherwise `user` and `password` are those of a user.
export async function logIn({ user, password, token }) {
  const credentials = token ? `Bearer ${token}` : `Basic ${base64(`${user}:${password}`)}`;
  return Object.assign(session, await post("/session", undefined, { headers: { Authorization: credentials } }));
}

export async function logOut() {
  await remove("/session");
}

// Whether the session may do an operation (DESCRIBE, ALTER, CREATE …) on the cluster.
export function may(operation) {
  return session.cluster_operations.includes(operation);
}

// Whether the session may do an operation (READ, WRITE, CREATE …) on at least one topic.
export function mayOnTopics(operation) {
  return session.topic_operations.includes(operation);
}

// Whether there is a route, for example isServed("GET /webhooks"). Its parameters are written as in the HTTP API.
export const isServed = (route) => !about.not_served.includes(route);

// Whether there is a page of pages.js, or a tab with a route, here. A bridge does not serve all of them.
export const exists = ({ route, engine = about.engine }) => engine === about.engine && (!route || isServed(route));

// Whether the session may use a page of pages.js.
export function isOffered(page) {
  return exists(page) && isAllowed(page);
}

function isAllowed({ needs }) {
  if (needs === "AUDIT") return session.reads_audit;
  if (needs === "TOPICS") return mayOnTopics("READ");
  return !needs || may(needs);
}

// Whether somebody has to log in before the console shows anything.
export const needsLogin = () => session.login_needed && session.kind === "anonymous";

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
