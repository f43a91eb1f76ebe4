// Who uses the console, and what the session may do.
import { get, post, remove } from "./api.js";

// The answer of GET /session.
export const session = {
  principal: null,
  kind: "anonymous",
  scope: null,
  login_required: false,
  operations: [],
  role: null,
};

export async function loadSession() {
  try {
    Object.assign(session, await get("/session"));
  } catch (error) {
    // A server without sessions has no authentication: everybody may do everything.
    if (error.status !== 404) throw error;
    session.operations = ["DESCRIBE", "ALTER", "CREATE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CLUSTER_ACTION"];
  }
  return session;
}

// `token` is the token of an API key; otherwise `user` and `password` are those of a user.
export async function logIn({ user, password, token }) {
  const credentials = token ? `Bearer ${token}` : `Basic ${base64(`${user}:${password}`)}`;
  await post("/session", undefined, { headers: { Authorization: credentials } });
  return loadSession();
}

export async function logOut() {
  await remove("/session");
}

// Whether the session may do an operation (DESCRIBE, ALTER, CREATE …) on the cluster.
export function may(operation) {
  return session.operations.includes(operation);
}

// Whether somebody has to log in before the console shows anything.
export const needsLogin = () => session.login_required && session.kind === "anonymous";

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
