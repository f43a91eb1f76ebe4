// The list of topics.
import { kafka, pagesOf, throwFirst } from "../api.js";
import { line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, pageHeader } from "../elements.js";
import { field, formDialog } from "../form.js";
import { bytes, duration, number, time } from "../format.js";
import { addKey } from "../keys.js";
import { mayCreateTopics } from "../rights.js";
import { go, setQuery, url } from "../router.js";
import { exists } from "../session.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { toast } from "../toast.js";

const PAGE = 10_000;
const TOPICS_MAX = 100_000;

// The kinds of topics, with the badge of each, and where there are such topics (see `exists` of session.js).
export const KINDS = {
  topic: { name: "Topics", text: "topic", kind: "" },
  room: { name: "Rooms", text: "room", kind: "accent" },
  events: { name: "Event store", text: "events", kind: "info", route: "POST /events" },
  internal: { name: "Internal", text: "internal", kind: "", engine: "server" },
};

export const title = "Topics";

export async function render(element, view) {
  let topics = null;
  let kind = view.query.kind in KINDS ? view.query.kind : "";
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "Kind" });
  const createButton = (kind) => mayCreateTopics() && button("Create topic", createTopic, { kind, icon: "plus" });
  const table = dataTable({
    label: "Topics",
    noun: "topic",
    view,
    columns: [
      { name: "Name", value: (one) => one.name },
      { name: "Kind", value: (one) => one.kind, render: (one) => (one.kind === "topic" ? h("span", { class: "muted" }, "topic") : badge(KINDS[one.kind].text, KINDS[one.kind].kind)), width: "7rem", hideBelow: 640 },
      { name: "Partitions", value: (one) => one.partitions, text: number, kind: "number", width: "7rem" },
      // A bridge does not know the sizes.
      exists({ engine: "server" }) && { name: "Size", value: (one) => one.size_bytes, text: bytes, kind: "number", width: "7rem" },
      { name: "Cleanup", value: (one) => one.cleanup_policy, width: "9rem", hideBelow: 900 },
      { name: "Retention", value: (one) => one.retention_ms, render: retention, width: "8rem", hideBelow: 900 },
      { name: "Created", value: (one) => one.created_ms, text: time, width: TIME_WIDTH, hideBelow: 1200 },
    ].filter(Boolean),
    key: (one) => one.name,
    href: (one) => url("/topics", one.name),
    filter: (one) => one.name,
    sort: "Name",
    empty: emptyState({ icon: "topics", title: "No topics yet", text: "A topic is a log of records with one or more partitions.", action: createButton("") }),
    tools: [choice],
  });

  const draw = () => {
    const entries = [["", "All"], ...Object.entries(KINDS).filter(([, one]) => exists(one)).map(([id, one]) => [id, one.name])];
    show(choice, entries.map(([id, name]) => h("button", { type: "button", "aria-pressed": String(id === kind), onclick: () => choose(id) }, name)));
    // The server's own topics are only listed if they are asked for.
    if (topics) table.setRows(topics.filter((one) => (kind ? one.kind === kind : one.kind !== "internal")));
  };
  const choose = (id) => {
    kind = id;
    setQuery({ kind });
    draw();
  };
  const load = async () => {
    try {
      topics = await pagesOf("/overview/topics", "topics", { limit: PAGE, max: TOPICS_MAX, signal: view.signal });
      draw();
    } catch (error) {
      table.setFailure(error, load);
      if (!error.status) throw error;
    }
  };
  show(element, pageHeader({ title: "Topics", about: "Logs of records, for Kafka clients and over HTTP.", actions: [createButton("primary")] }), table.element);
  if (mayCreateTopics()) addKey(view, "n", "Create a topic", createTopic);
  draw();
  await load();
}

function retention(topic) {
  if (topic.retention_ms === null || topic.retention_ms === undefined) return "";
  return topic.retention_ms < 0 ? "unlimited" : duration(topic.retention_ms);
}

const CLEANUP = [["delete", "delete old segments"], ["compact", "compact by key"], ["compact,delete", "compact and delete"]];
const RETENTION = [["", "default of the server"], ["3600000", "1 hour"], ["86400000", "1 day"], ["604800000", "7 days"], ["2592000000", "30 days"], ["-1", "unlimited"]];

function createTopic() {
  const configsOf = (values) =>
    Object.entries({ "cleanup.policy": values.cleanup === "delete" ? "" : values.cleanup, "retention.ms": values.retention }).filter(([, value]) => value);
  formDialog({
    title: "Create topic",
    action: "Create topic",
    fields: [
      field({ name: "name", label: "Name", required: true, maxlength: 249, pattern: "[a-zA-Z0-9._\\-]+", wide: true, autofocus: true, hint: "Letters, digits, and . _ -" }),
      field({ name: "partitions", label: "Partitions", type: "number", value: 1, min: 1, max: 10_000, required: true, hint: "Partitions can be added later, but not removed." }),
      field({ name: "cleanup", label: "Cleanup policy", type: "select", options: CLEANUP, value: "delete" }),
      field({ name: "retention", label: "Retention", type: "select", options: RETENTION, value: "" }),
    ],
    command: (values) =>
      line("kwire", "topic", "create", values.name || "NAME", "--partitions", String(values.partitions ?? 1), configsOf(values).flatMap(([name, value]) => ["--config", `${name}=${value}`])),
    run: async (values) => {
      const topic = {
        name: values.name,
        num_partitions: values.partitions,
        // The default of the server or, on a bridge, of its cluster.
        replication_factor: -1,
        assignments: [],
        configs: configsOf(values).map(([name, value]) => ({ name, value })),
      };
      throwFirst(await kafka("CreateTopics", { topics: [topic], timeout_ms: 30_000, validate_only: false }));
      toast(`Topic ${values.name} was created.`);
      go(url("/topics", values.name));
    },
    fieldOf: (error) => (["INVALID_TOPIC_EXCEPTION", "TOPIC_ALREADY_EXISTS"].includes(error.code) ? "name" : null),
  });
}
