// One API key: its limits and usage, rotation of its secret, aliases, revocation.
import { get, patch, post, remove } from "../api.js";
import { commandHint, line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { badge, button, card, emptyState, facts, keyFigure, keyFigures, pageHeader } from "../elements.js";
import { field, formDialog } from "../form.js";
import { NONE, count, number } from "../format.js";
import { go, url } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { toast } from "../toast.js";
import { createAlias, showSecret } from "./key/create.js";
import { LIMITS, limitFields, limitsOf } from "./key/limits.js";
import { allKeys, keyBadges, momentOf } from "./keys.js";

const REFRESH_MS = 3_000;
const OVERLAPS = [[86_400, "for 1 day"], [3_600, "for 1 hour"], [604_800, "for 7 days"], [0, "not at all"]];

export const title = "Key";

export async function render(element, view) {
  const path = pathOf(view.params.key);
  const figures = {
    events: keyFigure({ name: "Events" }),
    subscriptions: keyFigure({ name: "Subscriptions" }),
    rate: keyFigure({ name: "Publish rate" }),
    used: keyFigure({ name: "Last used" }),
  };
  const content = h("div", { class: "stack" });
  let key = null;
  const draw = async () => {
    key = await get(path, { signal: view.signal });
    const aliases = key.alias_of === null ? (await allKeys(view.signal)).filter((one) => one.alias_of === key.id) : [];
    show(
      element,
      pageHeader({
        title: key.description || "Key",
        parents: [["Keys", url("/keys")]],
        about: h("code", {}, key.id),
        badges: keyBadges(key),
        actions: [
          key.alias_of === null && button("Change limits", () => changeLimits(key, draw), { icon: "edit" }),
          key.alias_of === null && button("Create alias", () => createAlias(key, draw), { icon: "plus" }),
          button("Rotate", () => rotate(key, draw), { icon: "refresh" }),
          button("Revoke", () => revoke(key, aliases), { kind: "danger-quiet", icon: "trash" }),
        ],
      }),
      content,
    );
    show(
      content,
      keyFigures("Usage", Object.values(figures)),
      card({ title: "Details" }, details(key)),
      key.alias_of === null && card({ title: "Aliases", about: "They share the scope, the limits and the usage of this key.", flush: true }, aliasTable(aliases)),
      commandHint(line("kwire", "key", "list")).element,
    );
    await drawUsage();
  };
  const drawUsage = async () => {
    const usage = await get(`${path}/usage`, { signal: view.signal });
    figures.events.set(key.max_events === null ? NONE : number(usage.events), limitText(key.max_events, "not counted without a limit"), kindOf(usage.events, key.max_events));
    figures.subscriptions.set(number(usage.subscriptions), limitText(key.max_subscriptions, "open now, no limit"), kindOf(usage.subscriptions, key.max_subscriptions));
    figures.rate.set(key.publish_rate === null ? "no limit" : `${number(key.publish_rate)}/s`, "events per second");
    const [day = NONE, clock = ""] = momentOf(usage.last_used_at).split(" ");
    figures.used.set(day, clock);
  };
  await draw();
  view.every(REFRESH_MS, drawUsage);
}

const pathOf = (id) => `/keys/${encodeURIComponent(id)}`;
const limitText = (limit, none) => (limit === null ? none : `of at most ${number(limit)}`);
const kindOf = (used, limit) => (limit !== null && used >= limit ? "bad" : "");

function details(key) {
  const link = (id) => h("a", { href: url("/keys", id) }, id);
  return facts([
    ["Scope", key.scope ?? "none: full names"],
    key.prefix !== null && ["Full names begin with", h("code", {}, key.prefix)],
    key.alias_of !== null && ["Alias of", link(key.alias_of)],
    ["Created", momentOf(key.created_at)],
    ["Expires", key.expires_at ? momentOf(key.expires_at) : "never"],
    ["Previous secret valid until", momentOf(key.previous_secret_expires_at)],
  ]);
}

function aliasTable(rows) {
  return dataTable({
    label: "Aliases",
    noun: "alias",
    nouns: "aliases",
    rows,
    isClipped: true,
    columns: [
      { name: "Key", value: (one) => one.id, render: (one) => h("span", { class: "row-badges" }, h("a", { class: "row-link", href: url("/keys", one.id) }, one.id), one.status === "expired" && badge("expired", "bad")) },
      { name: "Description", value: (one) => one.description, hideBelow: 640 },
      { name: "Last used", value: (one) => one.last_used_at ?? "", text: momentOf, width: TIME_WIDTH, hideBelow: 900 },
    ],
    key: (one) => one.id,
    href: (one) => url("/keys", one.id),
    sort: "Key",
    empty: emptyState({ icon: "keys", title: "No aliases", text: "With an alias, two programs of a tenant need not share a secret." }),
  }).element;
}

function changeLimits(key, onDone) {
  // An empty field removes a limit. Only limits that have changed are sent.
  const changed = (values) => Object.fromEntries(Object.entries(limitsOf(values)).filter(([name, value]) => value !== key[name]));
  formDialog({
    title: "Change limits",
    about: "They apply at once, to open connections and to aliases, too.",
    action: "Change limits",
    fields: limitFields(key),
    command: (values) => line("kwire", "key", "alter", key.id, Object.entries(changed(values)).flatMap(([name, value]) => [LIMITS[name].option, value === null ? "none" : String(value)])),
    run: async (values) => {
      await patch(pathOf(key.id), changed(values));
      await onDone();
      toast("The limits were changed.");
    },
  });
}

function rotate(key, onDone) {
  formDialog({
    title: "Rotate the secret",
    about: "The key gets a new secret. Connections that have logged in with the old one are closed when it is no longer valid. A secret that an earlier rotation has replaced ends now.",
    action: "Rotate",
    fields: [field({ name: "overlap", label: "The old secret stays valid", type: "select", options: OVERLAPS, value: 86_400, wide: true })],
    command: (values) => line("kwire", "key", "rotate", key.id, "--overlap", values.overlap),
    run: async (values) => {
      const issued = await post(`${pathOf(key.id)}/rotate`, { overlap_secs: Number(values.overlap) });
      await onDone();
      showSecret("The key has a new secret", issued);
    },
  });
}

async function revoke(key, aliases) {
  const isDone = await confirmAction({
    title: "Revoke the key",
    effect: `Requests with this key${aliases.length ? ` and its ${count(aliases.length, "alias", "aliases")}` : ""} are refused from now on, and open connections and streams are closed. The data of the scope stays. This cannot be undone.`,
    typeName: key.id,
    command: line("kwire", "key", "revoke", key.id),
    action: "Revoke key",
    done: "The key was revoked.",
    run: () => remove(pathOf(key.id)),
  });
  if (isDone) go(url("/keys"));
}
