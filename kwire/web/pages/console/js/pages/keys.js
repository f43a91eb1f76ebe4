// The API keys: list and create.
import { pagesOf } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, pageHeader } from "../elements.js";
import { NONE, time } from "../format.js";
import { addKey } from "../keys.js";
import { url } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { createKey } from "./key/create.js";
import { limitsText } from "./key/limits.js";

const PAGE = 1_000;
export const KEYS_MAX = 20_000;

export const title = "Keys";

export const allKeys = (signal) => pagesOf("/keys", "keys", { limit: PAGE, max: KEYS_MAX, signal });
export const momentOf = (text) => (text ? time(Date.parse(text)) : NONE);
export const keyBadges = (key) => [
  key.status === "expired" && badge("expired", "bad"),
  key.root && badge("root", "warn"),
  key.scope !== null && badge(key.scope, "accent"),
  key.alias_of !== null && badge("alias"),
];

export async function render(element, view) {
  let keys = [];
  const load = async () => {
    try {
      keys = await allKeys(view.signal);
      table.setRows(keys);
    } catch (error) {
      table.setFailure(error, load);
      if (!error.status) throw error;
    }
  };
  const create = () => createKey({ scopes: [...new Set(keys.map((one) => one.scope).filter(Boolean))].sort(), onDone: load });
  const createButton = (kind) => button("Create key", create, { kind, icon: "plus" });
  const table = dataTable({
    label: "Keys",
    noun: "key",
    view,
    isClipped: true,
    columns: [
      { name: "Key", value: (one) => one.id },
      { name: "Description", value: (one) => one.description, width: "18%", hideBelow: 640 },
      { name: "Scope", value: (one) => one.scope ?? "", render: (one) => h("span", { class: "row-badges" }, keyBadges(one)), width: "9.5rem" },
      { name: "Limits", value: limitsText, width: "13rem", hideBelow: 1200 },
      { name: "Last used", value: (one) => one.last_used_at ?? "", text: momentOf, width: TIME_WIDTH, hideBelow: 900 },
    ],
    key: (one) => one.id,
    href: (one) => url("/keys", one.id),
    filter: (one) => `${one.id} ${one.description} ${one.scope ?? ""} ${one.prefix ?? ""} ${one.status} ${one.root ? "root" : ""} ${one.alias_of ?? ""}`,
    sort: "Scope",
    empty: emptyState({
      icon: "keys",
      title: "No keys yet",
      text: "A key is the login of a program. It sees the topics, rooms and groups of its scope, by their plain names.",
      action: createButton(""),
    }),
  });
  show(
    element,
    pageHeader({ title: "Keys", about: "Logins of programs. Each tenant has a scope, and sees only the names in it.", actions: [createButton("primary")] }),
    h("div", { class: "stack" }, table.element, commandHint(line("kwire", "key", "list")).element),
  );
  addKey(view, "n", "Create a key", create);
  await load();
}
