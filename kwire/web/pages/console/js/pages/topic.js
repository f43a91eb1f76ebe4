// One topic. Each tab is a module in pages/topic/: add one to TABS.
import { get, kafka, remove, throwFirst } from "../api.js";
import { line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { badge, button, pageHeader } from "../elements.js";
import { bytes, count } from "../format.js";
import { allowsTopic } from "../rights.js";
import { go, url } from "../router.js";
import { exists, may } from "../session.js";
import { tabs } from "../tabs.js";
import { groupsTab } from "./topic/groups.js";
import { partitionsTab } from "./topic/partitions.js";
import { produceRecords } from "./topic/produce.js";
import { recordsTab } from "./topic/records.js";
import { segmentsTab } from "./topic/segments.js";
import { settingsTab } from "./topic/settings.js";
import { KINDS } from "./topics.js";

// A tab is {id, name, render(element, topic, view), needs, clusterNeeds, route}. The id is the last part of the address;
// the first tab has none. `needs` is an operation on the topic without which the tab is not offered, `clusterNeeds` one
// on the cluster, and `route` the route that it shows: a bridge does not serve every route.
const TABS = [
  { id: "", name: "Records", render: recordsTab, needs: "READ" },
  { id: "partitions", name: "Partitions", render: partitionsTab },
  { id: "settings", name: "Settings", render: settingsTab, needs: "DESCRIBE_CONFIGS" },
  { id: "segments", name: "Segments", render: segmentsTab, clusterNeeds: "DESCRIBE", route: "GET /topics/{topic}/partitions/{partition}/segments" },
  { id: "groups", name: "Groups", render: groupsTab, route: "GET /api/v1/groups" },
];

// The kinds of topics that take records of any form.
const WRITABLE = ["topic", "room"];

export const title = ({ topic }) => topic;

export async function render(element, view) {
  const topic = await loadTopic(view.params.topic, view.signal);
  const { name } = topic;
  const isOffered = (tab) => exists(tab) && (!tab.needs || topic.allows(tab.needs)) && (!tab.clusterNeeds || may(tab.clusterNeeds));
  show(
    element,
    pageHeader({
      title: name,
      parents: [["Topics", url("/topics")]],
      badges: topic.kind === "topic" ? [] : [badge(KINDS[topic.kind].text, KINDS[topic.kind].kind)],
      about: [count(topic.partitionCount, "partition"), topic.configs["cleanup.policy"] && `cleanup policy ${topic.configs["cleanup.policy"]}`].filter(Boolean).join(" · "),
      actions: [
        topic.kind === "events" && h("a", { class: "button", href: url("/event-store/topics", name) }, "Event store"),
        topic.allows("WRITE") && WRITABLE.includes(topic.kind) && button("Produce", () => produceRecords(topic), { kind: "primary", icon: "send" }),
        topic.allows("DELETE") && topic.kind !== "internal" && button("Delete", () => deleteTopic(topic), { kind: "danger-quiet", icon: "trash" }),
      ],
    }),
    tabs({
      label: `Topic ${name}`,
      selected: view.params.tab,
      items: TABS.filter(isOffered).map((tab) => ({
        id: tab.id,
        name: tab.name,
        href: url("/topics", name, tab.id),
        render: (panel) => tab.render(panel, topic, view),
      })),
    }),
  );
}

// What all tabs need: {name, kind, configs, partitionCount, bootstrap, allows(operation)}. `bootstrap` is an address of the Kafka port.
async function loadTopic(name, signal) {
  const [described, metadata] = await Promise.all([
    get(`/topics/${encodeURIComponent(name)}`, { signal }),
    kafka("Metadata", { topics: [{ name }], allow_auto_topic_creation: false, include_topic_authorized_operations: true }, { signal }),
  ]);
  const [{ topic_authorized_operations: bits, is_internal: isInternal }] = throwFirst(metadata).topics;
  const [broker] = metadata.brokers;
  const { configs, partitions, schemas } = described;
  const kind = schemas !== undefined ? "events" : configs["kwire.room"] === "true" ? "room" : isInternal ? "internal" : "topic";
  return { name, kind, configs, partitionCount: partitions.length, bootstrap: `${broker.host}:${broker.port}`, allows: (operation) => allowsTopic(name, bits, operation) };
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
