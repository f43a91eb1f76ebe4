// Creating an API key or an alias, and the dialog that shows a new secret once.
import { post } from "../../api.js";
import { codeBlock, line } from "../../command.js";
import { openDialog } from "../../dialog.js";
import { h } from "../../dom.js";
import { button, notice } from "../../elements.js";
import { field, formDialog } from "../../form.js";
import { limitFields, limitWords, limitsOf } from "./limits.js";

const DAY_S = 24 * 3600;
const LIFETIMES = [["", "never"], [DAY_S, "after 1 day"], [30 * DAY_S, "after 30 days"], [90 * DAY_S, "after 90 days"], [365 * DAY_S, "after 1 year"]];

const descriptionField = () => field({ name: "description", label: "Description", maxlength: 200, wide: true, hint: "A note for administrators." });
const lifetimeField = () => field({ name: "expires", label: "Expires", type: "select", options: LIFETIMES, value: "" });
const commonWords = (values) => [values.expires && ["--expires-in", values.expires], values.description && ["--description", values.description]].filter(Boolean).flat();
const commonOf = (values) => ({ description: values.description, ...(values.expires && { expires_in_secs: Number(values.expires) }) });

// createKey({scopes: names that exist, onDone})
export function createKey({ scopes, onDone }) {
  const kind = field({
    name: "kind",
    label: "For",
    type: "select",
    value: "tenant",
    wide: true,
    options: [["tenant", "a tenant: only its own scope"], ["root", "an administrator: everything"]],
  });
  const suggestions = h("datalist", { id: "key-scopes" }, scopes.map((one) => h("option", { value: one })));
  const scope = field({
    name: "scope",
    label: "Scope",
    maxlength: 100,
    wide: true,
    autofocus: true,
    list: suggestions.id,
    placeholder: "acme",
    hint: "The name of the tenant: letters, digits, and . _ : -. The scope is created with its first key.",
    check: (text) => (kind.read() === "root" || /^[A-Za-z0-9._:-]+$/.test(text) ? "" : "A scope has letters, digits, and . _ : -"),
  });
  scope.element.append(suggestions);
  const isRoot = (values) => values.kind === "root";
  formDialog({
    title: "Create key",
    action: "Create key",
    fields: [kind, scope, descriptionField(), lifetimeField(), ...limitFields()],
    command: (values) => line("kwire", "key", "create", isRoot(values) ? "--root" : ["--scope", values.scope || "SCOPE"], limitWords(values), commonWords(values)),
    run: async (values) => {
      const body = { ...(isRoot(values) ? { root: true } : { scope: values.scope }), ...limitsOf(values), ...commonOf(values) };
      const issued = await post("/keys", body);
      await onDone();
      showSecret("The key was created", issued);
    },
  });
  kind.control.addEventListener("change", () => (scope.element.hidden = kind.read() === "root"));
}

export function createAlias(key, onDone) {
  formDialog({
    title: "Create alias",
    about: "A further key with a secret of its own. It shares the scope, the limits and the usage of this key, and can be revoked alone.",
    action: "Create alias",
    fields: [descriptionField(), lifetimeField()],
    command: (values) => line("kwire", "key", "create", "--alias-of", key.id, commonWords(values)),
    run: async (values) => {
      const issued = await post(`/keys/${encodeURIComponent(key.id)}/aliases`, commonOf(values));
      await onDone();
      showSecret("The alias was created", issued);
    },
  });
}

// Shows a new secret. When the dialog is closed, the page no longer has it.
export function showSecret(title, { id, secret, token }) {
  const part = (name, text, about) => h("section", { class: "stack part" }, h("h3", {}, name), h("p", { class: "about" }, about), codeBlock(text, { label: name }));
  const dialog = openDialog({
    title,
    wide: true,
    body: h(
      "div",
      { class: "stack" },
      notice("Copy the secret now: it is not shown again.", "warn"),
      part("Token", token, "For HTTP clients, as Authorization: Bearer TOKEN, and for the login of this console."),
      part("User name", id, "For Kafka clients, with the SASL mechanism PLAIN."),
      part("Password", secret, "The secret of the key."),
    ),
    actions: [button("Close", () => dialog.close(), { kind: "primary" })],
  });
}
