// One group: lag, offsets, members; reset of offsets, deletion.
import { get, kafka, throwFirst } from "../api.js";
import { commandHint, line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { button, emptyState, keyFigure, keyFigures, notice, pageHeader } from "../elements.js";
import { NONE, ago, count, number, seconds, time } from "../format.js";
import { allows } from "../rights.js";
import { go, url } from "../router.js";
import { dataTable } from "../table.js";
import { tabs } from "../tabs.js";
import { resetOffsets } from "./group/reset.js";
import { stateBadge } from "./groups.js";

const REFRESH_MS = 3_000;
// Offsets of a share group are not those of a consumer: they cannot be set by a commit.
const RESETTABLE = ["consumer", "classic"];

export const title = ({ group }) => group;

export async function render(element, view) {
  const name = view.params.group;
  const load = () => get(`/api/v1/groups/${encodeURIComponent(name)}`, { signal: view.signal });
  let group = await load();
  const operations = await operationsOf(group, view.signal);
  const figures = {
    lag: keyFigure({ name: "Lag" }),
    time: keyFigure({ name: "Lag in time" }),
    members: keyFigure({ name: "Members" }),
    partitions: keyFigure({ name: "Partitions" }),
  };
  const state = h("span", {});
  const offsets = offsetTable(view);
  const members = memberTable(view);
  const leftOut = h("div", {});
  const draw = () => {
    show(state, stateBadge(group.state));
    figures.lag.set(number(group.lag_offsets), group.unknown_lag_count ? `unknown for ${count(group.unknown_lag_count, "partition")}` : "records");
    figures.time.set(group.lag_seconds === null ? NONE : seconds(group.lag_seconds), "oldest unread record");
    figures.members.set(number(group.member_count), `${group.type} protocol`);
    figures.partitions.set(number(group.offset_count), "with a committed offset");
    offsets.setRows(group.offsets);
    members.setRows(group.members);
    show(leftOut, group.left_out_offset_count > 0 && notice(`${count(group.left_out_offset_count, "offset")} not shown.`), group.left_out_member_count > 0 && notice(`${count(group.left_out_member_count, "member")} not shown.`));
  };
  const actions = [
    RESETTABLE.includes(group.type) && allows(operations, "READ") && button("Reset offsets", () => resetOffsets(group, { onDone: refresh }), { icon: "clock" }),
    allows(operations, "DELETE") && button("Delete", () => deleteGroup(group), { kind: "danger-quiet", icon: "trash" }),
  ].filter(Boolean);
  async function refresh() {
    group = await load();
    draw();
  }
  show(
    element,
    pageHeader({ title: name, parents: [["Groups", url("/groups")]], badges: [state], actions }),
    h("div", { class: "stack" }, keyFigures("Group", Object.values(figures)), leftOut, tabs({
      label: `Group ${name}`,
      selected: view.params.tab,
      items: [
        { id: "", name: "Offsets", href: url("/groups", name), render: (panel) => show(panel, offsets.element, commandHint(line("kwire", "group", "describe", name)).element) },
        { id: "members", name: "Members", href: url("/groups", name, "members"), render: (panel) => show(panel, members.element, commandHint(line("kwire", "group", "describe", name)).element) },
      ],
    })),
  );
  draw();
  view.every(REFRESH_MS, refresh);
}

async function operationsOf({ group_id, type }, signal) {
  const [api, field] = type === "consumer" ? ["ConsumerGroupDescribe", "group_ids"] : ["DescribeGroups", "groups"];
  const { groups } = await kafka(api, { [field]: [group_id], include_authorized_operations: true }, { signal });
  return groups[0].error_code ? undefined : groups[0].authorized_operations;
}

function offsetTable(view) {
  return dataTable({
    label: "Offsets",
    noun: "partition",
    view,
    columns: [
      { name: "Topic", value: (one) => one.topic, render: (one) => h("a", { href: url("/topics", one.topic) }, one.topic), width: "12rem" },
      { name: "Partition", value: (one) => one.partition, text: String, kind: "number", width: "6rem" },
      { name: "Committed", value: (one) => one.committed_offset, text: number, kind: "number", width: "8rem", hideBelow: 640 },
      { name: "End", value: (one) => one.high_watermark, text: number, kind: "number", width: "8rem", hideBelow: 640 },
      { name: "Lag", value: (one) => one.lag_offsets, text: number, kind: "number", width: "6rem" },
      { name: "Lag in time", value: (one) => one.lag_seconds, text: seconds, kind: "number", width: "7.5rem", hideBelow: 640 },
      { name: "Committed at", value: (one) => one.commit_timestamp_ms, render: commitTime, width: "8rem", hideBelow: 1200 },
      { name: "Member", value: (one) => one.member_id ?? "", width: "10rem", hideBelow: 1200 },
    ],
    key: (one) => `${one.topic}-${one.partition}`,
    filter: (one) => `${one.topic} ${one.member_id ?? ""}`,
    sort: "Topic",
    empty: emptyState({ icon: "groups", title: "No committed offsets" }),
  });
}

// Exact times would leave no space for the topic in a window of 1280 pixels.
function commitTime({ commit_timestamp_ms: at }) {
  return h("span", { title: time(at) }, ago(at));
}

function memberTable(view) {
  return dataTable({
    label: "Members",
    noun: "member",
    view,
    queryName: "member",
    columns: [
      { name: "Member", value: (one) => one.member_id },
      { name: "Client", value: (one) => one.client_id, width: "12rem", hideBelow: 640 },
      { name: "Host", value: (one) => one.client_host, width: "10rem", hideBelow: 900 },
      { name: "Instance", value: (one) => one.group_instance_id ?? "", width: "10rem", hideBelow: 1200 },
      { name: "Partitions", value: (one) => one.assignment.reduce((sum, each) => sum + each.partitions.length, 0), text: number, kind: "number", width: "7rem" },
      { name: "Assignment", value: (one) => one.assignment.map((each) => `${each.topic} ${ranges(each.partitions)}`).join(", ") },
    ],
    key: (one) => one.member_id,
    filter: (one) => `${one.member_id} ${one.client_id} ${one.client_host}`,
    sort: "Member",
    empty: emptyState({ icon: "groups", title: "No members", text: "No consumer of this group is running." }),
  });
}


// [0, 1, 2, 5] -> "0-2, 5"
function ranges(partitions) {
  const parts = [];
  for (const one of [...partitions].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(", ");
}

async function deleteGroup({ group_id, member_count, offset_count }) {
  const isDone = await confirmAction({
    title: `Delete group ${group_id}`,
    effect: member_count
      ? `The group has ${count(member_count, "member")}, so the server will refuse: stop its consumers first.`
      : `${count(offset_count, "committed offset")} are deleted. Consumers of this group start again where auto.offset.reset says. This cannot be undone.`,
    typeName: group_id,
    command: line("kwire", "group", "delete", group_id),
    action: "Delete group",
    done: `Group ${group_id} was deleted.`,
    run: async () => throwFirst(await kafka("DeleteGroups", { groups_names: [group_id] })),
  });
  if (isDone) go(url("/groups"));
}
