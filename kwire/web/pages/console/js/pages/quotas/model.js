// Quotas: kinds with their units, entities, requests, and the words of `kwire quota`.
import { kafka, throwFirst } from "../../api.js";
import { line } from "../../command.js";
import { bytes, number } from "../../format.js";

// The quotas. `isOfAddress`: for IP addresses; the others are for users and client ids.
export const KINDS = {
  producer_byte_rate: { name: "Publish", unit: "bytes/s", text: (value) => `${bytes(value)}/s`, about: "Bytes per second that are published." },
  consumer_byte_rate: { name: "Read", unit: "bytes/s", text: (value) => `${bytes(value)}/s`, about: "Bytes per second that are read." },
  request_percentage: { name: "Request time", unit: "% of a core", text: (value) => `${value} %`, about: "Time in which the server handles requests. 100 is all the time of one core." },
  controller_mutation_rate: { name: "Topic changes", unit: "partitions/s", text: (value) => `${value}/s`, about: "Partitions per second that are created or deleted." },
  connection_creation_rate: { name: "Connections", unit: "connections/s", text: (value) => `${number(value)}/s`, isOfAddress: true, about: "New connections per second." },
};

// What a quota can be for: the types of its entity, in Kafka's names.
export const ENTITIES = {
  user: { text: "a user", types: ["user"] },
  client: { text: "a client id", types: ["client-id"] },
  both: { text: "a user together with a client id", types: ["user", "client-id"] },
  ip: { text: "an IP address", types: ["ip"] },
};
export const TYPE_NAMES = { user: "User", "client-id": "Client id", ip: "IP address" };
const TYPE_TEXTS = { user: "user", "client-id": "client", ip: "address" };
const DEFAULT_TEXTS = { user: "all other users", "client-id": "all other client ids", ip: "all other addresses" };

export const kindsOf = (entity) => Object.keys(KINDS).filter((one) => Boolean(KINDS[one].isOfAddress) === entity.some(({ entity_type: type }) => type === "ip"));

// An entity in parts: [["user", "alice"], ["client", "app"]]. A part without a name is a default.
export const partsOf = (entity) => entity.map(({ entity_type: type, entity_name: name }) => (name === null ? [DEFAULT_TEXTS[type], null] : [TYPE_TEXTS[type], name]));
export const entityText = (entity) => partsOf(entity).map(([type, name]) => (name === null ? type : `${type} ${name}`)).join(", ");

// All entities with their quotas: [{entity, values: {producer_byte_rate: 1048576}}]
export async function allQuotas(signal) {
  const { entries } = throwFirst(await kafka("DescribeClientQuotas", { components: [], strict: false }, { signal }));
  return (entries ?? []).map(({ entity, values }) => ({
    // A user comes before a client id.
    entity: [...entity].sort((one, other) => other.entity_type.localeCompare(one.entity_type)),
    values: Object.fromEntries(values.map(({ key, value }) => [key, value])),
  }));
}

// Sets quotas of an entity. A value of null removes one.
export async function alterQuotas(entity, values) {
  const ops = Object.entries(values).map(([key, value]) => ({ key, value: value ?? 0, remove: value === null }));
  throwFirst(await kafka("AlterClientQuotas", { entries: [{ entity, ops }], validate_only: false }));
}

const entityWord = (entity) => entity.map(({ entity_type: type, entity_name: name }) => (name === null ? type : `${type}=${name}`)).join(",");

export function setCommand(entity, values) {
  return line("kwire", "quota", "set", entityWord(entity), Object.entries(values).flatMap(([key, value]) => ["--config", `${key}=${value}`]));
}

export function deleteCommand(entity, keys = []) {
  return line("kwire", "quota", "delete", entityWord(entity), keys.flatMap((key) => ["--config", key]));
}
