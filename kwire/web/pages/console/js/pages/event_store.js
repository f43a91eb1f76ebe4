// The event store: its topics, and all events in their global order.
import { get, post, query } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, pageHeader } from "../elements.js";
import { field, formDialog } from "../form.js";
import { NONE, bytes, number, time } from "../format.js";
import { addKey } from "../keys.js";
import { mayCreateTopics } from "../rights.js";
import { go, url } from "../router.js";
import { mayOnTopics } from "../session.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { tabs } from "../tabs.js";
import { toast } from "../toast.js";
import { curl } from "./topic/commands.js";
import { allTab } from "./event_topic/live.js";
import { schemaCommands, schemaField, typeField, typeOf } from "./event_topic/schemas.js";

const PAGE = 10_000;
const TOPICS_MAX = 100_000;
// The topics whose schemas and counts are loaded, and the requests at once.
const DETAILS_MAX = 500;
const REQUESTS_MAX = 4;
const TYPES_SHOWN = 3;

export const title = "Event store";

export function render(element, view) {
  const create = (kind) => mayCreateTopics() && button("Create topic", createTopic, { kind, icon: "plus" });
  show(
    element,
    pageHeader({ title: "Event store", about: "Events with schemas, stored durably in one global order.", actions: [create("primary")] }),
    tabs({
      label: "Event store",
      selected: view.params.tab,
      items: [
        { id: "", name: "Topics", href: url("/event-store"), render: (panel) => topicsTab(panel, view, create("")) },
        mayOnTopics("READ") && { id: "all", name: "All events", href: url("/event-store/all"), render: (panel) => allTab(panel, view) },
      ].filter(Boolean),
    }),
  );
  if (mayCreateTopics()) addKey(view, "n", "Create a topic", createTopic);
}

async function topicsTab(element, view, action) {
  const table = dataTable({
    label: "Topics",
    noun: "topic",
    view,
    columns: [
      { name: "Topic", value: (one) => one.name },
      { name: "Events", value: (one) => one.sequence, text: number, kind: "number", width: "8rem" },
      { name: "Event types", value: (one) => one.types?.length, render: typeBadges, width: "26rem", hideBelow: 900 },
      { name: "Size", value: (one) => one.size_bytes, text: bytes, kind: "number", width: "7rem" },
      { name: "Created", value: (one) => one.created_ms, text: (ms) => time(ms), width: TIME_WIDTH, hideBelow: 1200 },
    ],
    key: (one) => one.name,
    href: (one) => url("/event-store/topics", one.name),
    filter: (one) => `${one.name} ${one.types?.join(" ") ?? ""}`,
    sort: "Topic",
    empty: emptyState({
      icon: "events",
      title: "No topics in the event store yet",
      text: "A topic of the event store has a JSON Schema for each of its event types.",
      action,
    }),
  });
  show(element, table.element, commandHint(line("kwire", "schema", "list")).element);
  const topics = await eventTopics(view.signal);
  table.setRows(topics);
  await addDetails(topics.slice(0, DETAILS_MAX), view.signal);
  table.setRows(topics);
}

function typeBadges({ types }) {
  if (!types) return h("span", { class: "muted" }, NONE);
  const rest = types.length - TYPES_SHOWN;
  return h("span", { class: "row" }, types.slice(0, TYPES_SHOWN).map((one) => badge(one)), rest > 0 && h("span", { class: "muted" }, `and ${rest} more`));
}

async function eventTopics(signal) {
  const found = [];
  let after;
  do {
    const page = await get(`/overview/topics${query({ limit: PAGE, after })}`, { signal });
    found.push(...page.topics.filter((one) => one.kind === "events"));
    after = page.next;
  } while (after && found.length < TOPICS_MAX);
  return found;
}

// Adds the number of events and the event types to each topic.
async function addDetails(topics, signal) {
  const left = [...topics];
  const work = async () => {
    for (let one = left.shift(); one; one = left.shift()) {
      const { sequence, schemas } = await get(`/topics/${encodeURIComponent(one.name)}/schemas`, { signal });
      Object.assign(one, { sequence, types: schemas.map(typeOf) });
    }
  };
  await Promise.all(Array.from({ length: REQUESTS_MAX }, work));
}

// The field to which an error of the server belongs.
const FIELD_OF = { InvalidSchema: "text", InvalidName: "name", TOPIC_ALREADY_EXISTS: "name", INVALID_TOPIC_EXCEPTION: "name" };

function createTopic() {
  const bodyOf = ({ name, type, text }) => ({ name, schemas: [{ eventType: type, ...JSON.parse(text) }] });
  formDialog({
    title: "Create topic",
    about: "The topic accepts only events that match one of its schemas. More event types can be added later.",
    wide: true,
    action: "Create topic",
    fields: [
      field({ name: "name", label: "Name", required: true, maxlength: 249, pattern: "[a-zA-Z0-9._\\-]+", autofocus: true, hint: "Letters, digits, and . _ -" }),
      typeField(""),
      schemaField(),
    ],
    command: (values) => schemaCommands(values.name || "TOPIC", () => curl("/topics", "--json", JSON.stringify(bodyOf(values)))),
    run: async (values) => {
      await post("/topics", bodyOf(values));
      toast(`Topic ${values.name} was created.`);
      go(url("/event-store/topics", values.name));
    },
    fieldOf: (error) => FIELD_OF[error.code] ?? null,
  });
}
