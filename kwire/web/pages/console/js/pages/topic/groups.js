// The groups that have committed offsets of a topic, with their lag there.
import { get, kafka, query } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { emptyState, notice } from "../../elements.js";
import { count, number } from "../../format.js";
import { url } from "../../router.js";
import { dataTable } from "../../table.js";
import { stateBadge } from "../groups.js";
import { nextOffset } from "./partitions.js";

const REFRESH_MS = 5_000;
const PAGE = 1_000;
const GROUPS_MAX = 5_000;
const GROUPS_PER_REQUEST = 100;
// From this version on, topics have ids instead of names.
const LAST_VERSION_WITH_NAMES = 9;

export async function groupsTab(element, topic, view) {
  const note = h("div", { class: "stack" });
  const table = dataTable({
    label: "Groups",
    noun: "group",
    view,
    columns: [
      { name: "Group", value: (one) => one.group_id, width: "12rem" },
      { name: "State", value: (one) => one.state, render: (one) => stateBadge(one.state), width: "9rem" },
      { name: "Members", value: (one) => one.member_count, text: number, kind: "number", width: "7rem", hideBelow: 640 },
      {
        name: "Partitions",
        value: (one) => one.partitions,
        text: (value) => `${number(value)} of ${number(topic.partitionCount)}`,
        kind: "number",
        width: "8rem",
        hideBelow: 640,
      },
      { name: "Lag", value: (one) => one.lag, text: number, kind: "number", width: "9rem" },
    ],
    key: (one) => one.group_id,
    href: (one) => url("/groups", one.group_id),
    filter: (one) => `${one.group_id} ${one.state}`,
    sort: "-Lag",
    empty: emptyState({ icon: "groups", title: "No group reads this topic", text: "A group appears here when it has committed an offset of this topic." }),
  });
  show(element, note, table.element, commandHint(line("kwire", "group", "list")).element);
  const load = async () => {
    try {
      const found = await readersOf(topic, view.signal);
      show(note, found.isCut && notice(`Only the first ${count(GROUPS_MAX, "group")} of the server were examined.`));
      table.setRows(found.groups);
    } catch (error) {
      if (!error.status && !error.code) throw error;
      table.setFailure(error);
    }
  };
  view.every(REFRESH_MS, load);
}

async function readersOf(topic, signal) {
  const [{ partitions }, all] = await Promise.all([get(`/topics/${encodeURIComponent(topic.name)}/stats`, { signal }), allGroups(signal)]);
  const ends = new Map(partitions.map((one) => [one.partition_id, nextOffset(one)]));
  const groups = [];
  for (let first = 0; first < all.groups.length; first += GROUPS_PER_REQUEST) {
    const some = all.groups.slice(first, first + GROUPS_PER_REQUEST);
    const committed = await committedOffsets(topic, some, [...ends.keys()], signal);
    for (const group of some) {
      const offsets = committed.get(group.group_id) ?? [];
      if (!offsets.length) continue;
      const lag = offsets.reduce((sum, one) => sum + Math.max(0, ends.get(one.partition_index) - one.committed_offset), 0);
      groups.push({ ...group, partitions: offsets.length, lag });
    }
  }
  return { groups, isCut: all.isCut };
}

async function allGroups(signal) {
  const groups = [];
  let after;
  do {
    const page = await get(`/api/v1/groups${query({ limit: PAGE, after })}`, { signal });
    groups.push(...page.groups);
    after = page.next;
  } while (after !== null && groups.length < GROUPS_MAX);
  return { groups, isCut: after !== null };
}

// The committed offsets of this topic, by group. A group that was deleted meanwhile has none.
async function committedOffsets({ name }, groups, indexes, signal) {
  const wanted = groups.map(({ group_id }) => ({ group_id, topics: [{ name, partition_indexes: indexes }] }));
  const answer = await kafka("OffsetFetch", { groups: wanted, require_stable: false }, { version: LAST_VERSION_WITH_NAMES, signal });
  return new Map(answer.groups.map((one) => [
    one.group_id,
    one.topics.flatMap((topic) => topic.partitions).filter((each) => !each.error_code && each.committed_offset >= 0),
  ]));
}
