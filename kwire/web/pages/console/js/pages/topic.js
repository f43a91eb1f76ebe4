// One topic. Each tab is a module in pages/topic/: add one to TABS.
import { get } from "../api.js";
import { line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { show } from "../dom.js";
import { badge, button, pageHeader } from "../elements.js";
import { bytes, count } from "../format.js";
import { go, url } from "../router.js";
import { tabs } from "../tabs.js";
import * as api from "../api.js";
import { partitionsTab } from "./topic/partitions.js";
import { settingsTab } from "./topic/settings.js";
import { KINDS } from "./topics.js";

// A tab is {id, name, render(element, topic, view)}. The id is the last part of the address; the first tab has none.
const TABS = [
  { id: "", name: "Partitions", render: partitionsTab },
  { id: "settings", name: "Settings", render: settingsTab },
];

export const title = ({ topic }) => topic;

export async function render(element, view) {
  const name = view.params.topic;
  const described = await get(`/topics/${encodeURIComponent(name)}`, { signal: view.signal });
  const topic = { name, configs: described.configs, partitions: described.partitions, kind: kindOf(described) };
  const about = [count(topic.partitions.length, "partition"), topic.configs["cleanup.policy"]].filter(Boolean).join(" · ");
  show(
    element,
    pageHeader({
      title: name,
      parents: [["Topics", url("/topics")]],
      badges: topic.kind === "topic" ? [] : [badge(KINDS[topic.kind].text, KINDS[topic.kind].kind)],
      about,
      actions: [button("Delete", () => deleteTopic(topic), { kind: "danger-quiet", icon: "trash" })],
    }),
    tabs({
      label: `Topic ${name}`,
      selected: view.params.tab,
      items: TABS.map((tab) => ({ id: tab.id, name: tab.name, href: url("/topics", name, tab.id), render: (panel) => tab.render(panel, topic, view) })),
    }),
  );
}

function kindOf({ name, configs, schemas }) {
  if (schemas !== undefined) return "events";
  if (configs["kwire.room"] === "true") return "room";
  return name.startsWith("__") ? "internal" : "topic";
}

async function deleteTopic({ name, partitions }) {
  const stats = await get(`/topics/${encodeURIComponent(name)}/stats`);
  const size = stats.partitions.reduce((sum, one) => sum + one.total_bytes, 0);
  const isDone = await confirmAction({
    title: `Delete topic ${name}`,
    effect: `${count(partitions.length, "partition")} with ${bytes(size)} of records are deleted. Consumers and producers of this topic get errors. This cannot be undone.`,
    typeName: name,
    command: line("kwire", "topic", "delete", name),
    action: "Delete topic",
    done: `Topic ${name} was deleted.`,
    run: () => api.remove(`/topics/${encodeURIComponent(name)}`),
  });
  if (isDone) go(url("/topics"));
}
