// One topic of the event store: its events, live and stored, its schemas; publish, delete.
import { get, kafka, remove, throwFirst } from "../api.js";
import { line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { show } from "../dom.js";
import { button, pageHeader } from "../elements.js";
import { count } from "../format.js";
import { allows } from "../rights.js";
import { go, url } from "../router.js";
import { tabs } from "../tabs.js";
import { browseTab } from "./event_topic/browse.js";
import { liveTab } from "./event_topic/live.js";
import { publishEvent } from "./event_topic/publish.js";
import { schemasTab } from "./event_topic/schemas.js";

// `needs` is an operation on the topic without which a tab is not offered.
const TABS = [
  { id: "", name: "Events", render: browseTab, needs: "READ" },
  { id: "live", name: "Live", render: liveTab, needs: "READ" },
  { id: "schemas", name: "Schemas", render: schemasTab },
];

export const title = ({ topic }) => topic;

export async function render(element, view) {
  const topic = await loadTopic(view.params.topic, view.signal);
  const { name, schemas, sequence } = topic;
  topic.publish = (type) => publishEvent(topic, { type, onDone: () => go(location.pathname + location.search, { replace: true }) });
  show(
    element,
    pageHeader({
      title: name,
      parents: [["Event store", url("/event-store")]],
      about: `${count(sequence, "event")} · ${count(schemas.length, "event type")}`,
      actions: [
        topic.allows("WRITE") && button("Publish event", () => topic.publish(), { kind: "primary", icon: "send" }),
        topic.allows("DELETE") && button("Delete", () => deleteTopic(topic), { kind: "danger-quiet", icon: "trash" }),
      ],
    }),
    tabs({
      label: `Topic ${name}`,
      selected: view.params.tab,
      items: TABS.filter(({ needs }) => !needs || topic.allows(needs)).map((tab) => ({
        id: tab.id,
        name: tab.name,
        count: tab.id === "schemas" ? schemas.length : undefined,
        href: url("/event-store/topics", name, tab.id),
        render: (panel) => tab.render(panel, topic, view),
      })),
    }),
  );
}

// What all tabs need: {name, schemas, sequence, allows(operation)}.
async function loadTopic(name, signal) {
  const body = { topics: [{ name }], allow_auto_topic_creation: false, include_topic_authorized_operations: true };
  const [described, metadata] = await Promise.all([get(`/topics/${encodeURIComponent(name)}/schemas`, { signal }), kafka("Metadata", body, { signal })]);
  const bits = throwFirst(metadata).topics[0].topic_authorized_operations;
  return { ...described, allows: (operation) => allows(bits, operation) };
}

async function deleteTopic({ name, sequence, schemas }) {
  const isDone = await confirmAction({
    title: `Delete topic ${name}`,
    effect: `${count(sequence, "event")} and ${count(schemas.length, "schema")} are deleted. Its subscriptions end. This cannot be undone.`,
    typeName: name,
    command: line("kwire", "schema", "delete", name),
    action: "Delete topic",
    done: `Topic ${name} was deleted.`,
    run: () => remove(`/topics/${encodeURIComponent(name)}`),
  });
  if (isDone) go(url("/event-store"));
}
