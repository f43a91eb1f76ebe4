// A table of ACLs.
import { h } from "../../dom.js";
import { badge } from "../../elements.js";
import { dataTable } from "../../table.js";
import { TYPES } from "./model.js";

export const keyOf = (acl) => Object.values(acl).join("\0");
export const resourceText = ({ type, name, isPrefixed }) => (type === "cluster" ? "cluster" : `${TYPES[type]?.text ?? type} ${name}${isPrefixed ? "*" : ""}`);
export const aclText = (acl) => `${acl.permission} ${acl.principal} to ${acl.operation} ${resourceText(acl)}`;

// aclTable({label, rows, actions: (acl) => elements, …}): further options are those of dataTable.
export function aclTable({ label, actions, ...options }) {
  return dataTable({
    label,
    noun: "ACL",
    columns: [
      { name: "Principal", value: (one) => one.principal, render: (one) => h("b", {}, one.principal) },
      { name: "Operation", value: (one) => `${one.operation} ${one.permission}`, render: operation, width: "14rem" },
      { name: "Resource", value: resourceText, render: resource },
      { name: "Host", value: (one) => one.host, render: (one) => (one.host === "*" ? h("span", { class: "muted" }, "all") : h("code", {}, one.host)), width: "9rem", hideBelow: 900 },
      actions && { name: "", kind: "actions", width: "6rem", render: actions },
    ].filter(Boolean),
    key: keyOf,
    sort: "Principal",
    isStacked: true,
    ...options,
  });
}

const operation = (one) => h("span", { class: "row" }, badge(one.permission, one.permission === "allow" ? "good" : "bad"), one.operation);

function resource({ type, name, isPrefixed }) {
  if (type === "cluster") return h("span", { class: "muted" }, "cluster");
  const shown = name === "*" && !isPrefixed ? h("span", {}, "all") : h("code", {}, name);
  return h("span", { class: "row" }, h("span", { class: "muted" }, TYPES[type]?.text ?? type), shown, isPrefixed && badge("prefix", "info"));
}
