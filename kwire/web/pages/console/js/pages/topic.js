// One topic. Each tab is a module in pages/topic/: add one to TABS.
import { get, kafka, remove, throwFirst } from "../api.js";
import { line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { show } from "../dom.js";
import { badge, button, pageHeader } from "../elements.js";
import { field, formDialog } from "../form.js";
import { bytes, count, number } from "../format.js";
import { allows } from "../rights.js";
import { go, url } from "../router.js";
import { tabs } from "../tabs.js";
import { toast } from "../toast.js";
import { partitionsTab } from "./topic/partitions.js";
import { settingsTab } from "./topic/settings.js";
import { KINDS } from "./topics.js";

// A tab is {id, name, render(element, topic, view), needs}. The id is the last part of the address; the first tab has
// none. `needs` is an operation on the topic without which the tab is not offered.
const TABS = [
  { id: "", name: "Partitions", render: partitionsTab },
  { id: "settings", name: "Settings", render: settingsTab, needs: "DESCRIBE_CONFIGS" },
];

const PARTITIONS_MAX = 10_000;

export const title = ({ topic }) => topic;

export async function render(element, view) {
  const topic = await loadTopic(view.params.topic, view.signal);
  const { name } = topic;
  const canGrow = topic.allows("ALTER") && topic.kind === "topic";
  show(
    element,
    pageHeader({
      title: name,
      parents: [["Topics", url("/topics")]],
      badges: topic.kind === "topic" ? [] : [badge(KINDS[topic.kind].text, KINDS[topic.kind].kind)],
      about: [count(topic.partitionCount, "partition"), topic.configs["cleanup.policy"]].filter(Boolean).join(" · "),
      actions: [
        canGrow && button("Add partitions", () => addPartitions(topic), { icon: "plus" }),
        topic.allows("DELETE") && topic.kind !== "internal" && button("Delete", () => deleteTopic(topic), { kind: "danger-quiet", icon: "trash" }),
      ],
    }),
    tabs({
      label: `Topic ${name}`,
      selected: view.params.tab,
      items: TABS.filter((tab) => !tab.needs || topic.allows(tab.needs)).map((tab) => ({
        id: tab.id,
        name: tab.name,
        href: url("/topics", name, tab.id),
        render: (panel) => tab.render(panel, topic, view),
      })),
    }),
  );
}

// What all tabs need: {name, kind, configs, partitionCount, allows(operation)}.
async function loadTopic(name, signal) {
  const [described, metadata] = await Promise.all([
    get(`/topics/${encodeURIComponent(name)}`, { signal }),
    kafka("Metadata", { topics: [{ name }], allow_auto_topic_creation: false, include_topic_authorized_operations: true }, { signal }),
  ]);
  const [{ topic_authorized_operations: bits, is_internal: isInternal }] = throwFirst(metadata).topics;
  const { configs, partitions, schemas } = described;
  const kind = schemas !== undefined ? "events" : configs["kwire.room"] === "true" ? "room" : isInternal ? "internal" : "topic";
  return { name, kind, configs, partitionCount: partitions.length, allows: (operation) => allows(bits, operation) };
}

function addPartitions({ name, partitionCount }) {
  formDialog({
    title: `Add partitions to ${name}`,
    about: "Partitions cannot be removed. Records with a key go to other partitions afterwards, so their order by key is kept only within each partition.",
    action: "Add partitions",
    fields: [
      field({ name: "total", label: "Partitions in total", type: "number", value: partitionCount + 1, min: partitionCount + 1, max: PARTITIONS_MAX, required: true, autofocus: true, hint: `Now: ${number(partitionCount)}` }),
    ],
    command: ({ total }) => line("kwire", "topic", "add-partitions", name, "--partitions", String(total ?? "")),
    run: async ({ total }) => {
      throwFirst(await kafka("CreatePartitions", { topics: [{ name, count: total, assignments: null }], timeout_ms: 30_000, validate_only: false }));
      toast(`Topic ${name} has ${count(total, "partition")}.`);
      go(url("/topics", name), { replace: true });
    },
  });
}

async function deleteTopic({ name, partitionCount }) {
  const stats = await get(`/topics/${encodeURIComponent(name)}/stats`);
  const size = stats.partitions.reduce((sum, one) => sum + one.total_bytes, 0);
  const isDone = await confirmAction({
    title: `Delete topic ${name}`,
    effect: `${count(partitionCount, "partition")} with ${bytes(size)} of records are deleted. Consumers and producers of this topic get errors. This cannot be undone.`,
    typeName: name,
    command: line("kwire", "topic", "delete", name),
    action: "Delete topic",
    done: `Topic ${name} was deleted.`,
    run: () => remove(`/topics/${encodeURIComponent(name)}`),
  });
  if (isDone) go(url("/topics"));
}
