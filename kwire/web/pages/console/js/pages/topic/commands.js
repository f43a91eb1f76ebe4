// Command lines for records: kwire, kcat and curl.
import { line } from "../../command.js";
import { session } from "../../session.js";

// curl("/topics/orders/records?limit=5", "--no-buffer")
export function curl(path, ...options) {
  return line("curl", session.kind === "user" && ["--user", session.principal.replace(/^User:/, "")], options, `${location.origin}${path}`);
}

// kcat(topic, "-C", "-o", "beginning")
export function kcat(topic, mode, ...options) {
  return line("kcat", mode, "-b", topic.bootstrap, "-t", topic.name, options.flat());
}
