// What the session may do with topics and groups: Kafka's authorized operations, a set of bits in its responses.
import { may, mayOnTopics, session } from "./session.js";

// Kafka's codes of operations.
const CODES = { READ: 3, WRITE: 4, CREATE: 5, DELETE: 6, ALTER: 7, DESCRIBE: 8, CLUSTER_ACTION: 9, DESCRIBE_CONFIGS: 10, ALTER_CONFIGS: 11, IDEMPOTENT_WRITE: 12 };

// The value in a response that does not have the operations.
const UNKNOWN = -(2 ** 31);

// allows(topic.topic_authorized_operations, "DELETE"). If the server does not say, the action is offered and may be
// refused.
export function allows(bits, operation) {
  return bits === undefined || bits === UNKNOWN || ((bits >> CODES[operation]) & 1) === 1;
}

// The topic of the audit log. Only the server changes it, whatever the rights of a client are. A tenant may have a topic
// of this name, which is an ordinary one.
export const AUDIT_TOPIC = "kwire-audit";
const CHANGES = ["WRITE", "DELETE", "ALTER", "ALTER_CONFIGS"];

// As `allows`, for the topic with this name.
export function allowsTopic(name, bits, operation) {
  const isProtected = name === AUDIT_TOPIC && session.scope === null;
  return !(isProtected && CHANGES.includes(operation)) && allows(bits, operation);
}

// Whether creating a topic is offered. The right may apply to some names only.
export const mayCreateTopics = () => may("CREATE") || mayOnTopics("CREATE");
