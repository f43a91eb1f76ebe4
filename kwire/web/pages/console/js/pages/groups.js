// The list of groups of every kind, with their lag in records and seconds.
import { pagesOf } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, emptyState, pageHeader } from "../elements.js";
import { number, seconds } from "../format.js";
import { url } from "../router.js";
import { dataTable } from "../table.js";

const REFRESH_MS = 5_000;
const GROUPS_MAX = 20_000;
const PAGE = 1_000;

const STATE_KINDS = { Stable: "good", Empty: "", Dead: "bad" };

export const stateBadge = (state) => badge(state, STATE_KINDS[state] ?? "warn");

export const title = "Groups";

export async function render(element, view) {
  const table = dataTable({
    label: "Groups",
    noun: "group",
    view,
    columns: [
      { name: "Group", value: (one) => one.group_id, width: "12rem" },
      { name: "Type", value: (one) => one.type, width: "8rem", hideBelow: 900 },
      { name: "State", value: (one) => one.state, render: (one) => stateBadge(one.state), width: "9rem" },
      { name: "Members", value: (one) => one.member_count, text: number, kind: "number", width: "7rem", hideBelow: 640 },
      { name: "Lag", value: (one) => one.lag_offsets, text: number, kind: "number", width: "8rem" },
      { name: "Lag in time", value: (one) => one.lag_seconds, text: seconds, kind: "number", width: "9rem", hideBelow: 640 },
    ],
    key: (one) => one.group_id,
    href: (one) => url("/groups", one.group_id),
    filter: (one) => `${one.group_id} ${one.state} ${one.type}`,
    sort: "Group",
    empty: emptyState({ icon: "groups", title: "No groups yet", text: "A group appears when a consumer with a group id joins or commits an offset." }),
  });
  show(
    element,
    pageHeader({ title: "Groups", about: "Consumers that share the partitions of topics, and how far they have read." }),
    h("div", { class: "stack" }, table.element, commandHint(line("kwire", "group", "list")).element),
  );
  view.every(REFRESH_MS, async () => {
    try {
      table.setRows(await pagesOf("/api/v1/groups", "groups", { limit: PAGE, max: GROUPS_MAX, signal: view.signal }));
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error);
    }
  });
}
