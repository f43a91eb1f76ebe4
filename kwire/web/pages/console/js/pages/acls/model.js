// ACLs: Kafka's codes, requests, and the words of `kwire acl`.
import { kafka, throwFirst } from "../../api.js";
import { line } from "../../command.js";

const ANY = 1;
const MATCH = 2;
const LITERAL = 3;
const PREFIXED = 4;
export const CLUSTER_NAME = "kafka-cluster";

export const PERMISSIONS = { deny: 2, allow: 3 };
const OPERATIONS = {
  all: 2,
  read: 3,
  write: 4,
  create: 5,
  delete: 6,
  alter: 7,
  describe: 8,
  "cluster-action": 9,
  "describe-configs": 10,
  "alter-configs": 11,
  "idempotent-write": 12,
  "create-tokens": 13,
  "describe-tokens": 14,
  "two-phase-commit": 15,
};

// The types of resources: name, option of the command line, and the operations that they have.
const TOPIC_OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs"];
export const TYPES = {
  topic: { code: 2, text: "topic", option: "--topic", operations: TOPIC_OPERATIONS },
  group: { code: 3, text: "group", option: "--group", operations: ["read", "delete", "describe", "describe-configs", "alter-configs"] },
  cluster: { code: 4, text: "cluster", option: "--cluster", operations: ["create", "alter", "describe", "cluster-action", "describe-configs", "alter-configs", "idempotent-write"] },
  transactional: { code: 5, text: "transactional id", option: "--transactional-id", operations: ["write", "describe", "two-phase-commit"] },
  token: { code: 6, text: "delegation token", operations: ["describe"] },
  user: { code: 7, text: "user", operations: ["create-tokens", "describe-tokens"] },
};

const nameOf = (codes, code) => Object.keys(codes).find((one) => (codes[one].code ?? codes[one]) === code) ?? String(code);

// The ACLs that match a filter, as {principal, permission, operation, type, name, isPrefixed, host}. A filter has these
// fields, too; a field that is missing or empty matches everything. `isApplying`: ACLs that apply to the name, also those
// of prefixes and of all names.
export async function findAcls(filter, { isApplying = false, signal } = {}) {
  const { resources } = throwFirst(await kafka("DescribeAcls", filterMessage(filter, isApplying), { signal }));
  return resources.flatMap((resource) =>
    resource.acls.map((one) => ({
      principal: one.principal,
      permission: nameOf(PERMISSIONS, one.permission_type),
      operation: nameOf(OPERATIONS, one.operation),
      type: nameOf(TYPES, resource.resource_type),
      name: resource.resource_name,
      isPrefixed: resource.pattern_type === PREFIXED,
      host: one.host,
    })),
  );
}

// Deletes the ACLs that match filters, and returns their number.
export async function deleteAcls(filters) {
  const { filter_results: results } = throwFirst(await kafka("DeleteAcls", { filters: filters.map((one) => filterMessage(one, false)) }));
  return results.reduce((sum, one) => sum + one.matching_acls.length, 0);
}

export async function createAcls(acls) {
  const creations = acls.map((one) => ({
    resource_type: TYPES[one.type].code,
    resource_name: one.name,
    resource_pattern_type: one.isPrefixed ? PREFIXED : LITERAL,
    principal: one.principal,
    host: one.host,
    operation: OPERATIONS[one.operation],
    permission_type: PERMISSIONS[one.permission],
  }));
  throwFirst(await kafka("CreateAcls", { creations }));
}

function filterMessage({ principal, permission, operation, type, name, isPrefixed, host }, isApplying) {
  const resourceName = type === "cluster" ? CLUSTER_NAME : name;
  const byName = isPrefixed ? PREFIXED : isApplying ? MATCH : LITERAL;
  return {
    resource_type_filter: TYPES[type]?.code ?? ANY,
    resource_name_filter: resourceName || null,
    pattern_type_filter: resourceName ? byName : isPrefixed ? PREFIXED : ANY,
    principal_filter: principal || null,
    host_filter: host || null,
    operation: OPERATIONS[operation] ?? ANY,
    permission_type: PERMISSIONS[permission] ?? ANY,
  };
}

// The command for ACLs or a filter: commandOf("delete", {principal: "User:app", type: "topic", name: "orders"}). Several
// operations are separated by commas. Returns null for what the command line cannot express.
export function commandOf(verb, { principal, permission, operation, type, name, isPrefixed, host }) {
  const { option } = TYPES[type] ?? {};
  if (type && (!option || (type !== "cluster" && !name))) return null;
  if (Boolean(permission) !== Boolean(operation)) return null;
  return line(
    "kwire",
    "acl",
    verb,
    principal && ["--principal", principal],
    permission && [`--${permission}`, operation],
    type && (type === "cluster" ? [option] : [option, name]),
    isPrefixed && "--prefixed",
    host && (verb !== "add" || host !== "*") && ["--host", host],
  );
}
