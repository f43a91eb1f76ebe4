// The overview: key figures and live charts of the last ten minutes.
import { get, query } from "../api.js";
import { h, show } from "../dom.js";
import { badge, failure, keyFigure, keyFigures, notice, pageHeader } from "../elements.js";
import { bytes, count, number, perSecond, percent, seconds, short } from "../format.js";
import { lineChart } from "../chart.js";
import { commandHint } from "../command.js";
import { url } from "../router.js";
import { about } from "../session.js";

export const title = "Overview";

const WINDOW_MS = 600_000;

const LATENCY = { title: "Request latency", about: "without long polls", series: [{ name: "p50" }, { name: "p99" }], columns: ["request_p50_seconds", "request_p99_seconds"], format: seconds, least: 0.001 };
const MEMORY = { title: "Memory", about: "of the process", series: [{ name: "Resident" }, { name: "Private" }], columns: ["memory_bytes", "anonymous_memory_bytes"], format: bytes, binary: true };
const EVENT_LOOP = { title: "Event loop", about: "longest stall per interval", series: [{ name: "Stall" }], columns: ["stall_seconds"], format: seconds, least: 0.01 };

const SERVER_CHARTS = [
  { title: "Traffic", about: "bytes per second", series: [{ name: "In" }, { name: "Out" }], columns: ["received_bytes", "sent_bytes"], format: perSecond(bytes), axis: bytes, binary: true, least: 1024 },
  { title: "Records", about: "per second", series: [{ name: "Appended" }, { name: "Fetched" }], columns: ["appended_records", "fetched_records"], format: perSecond(short), axis: short, least: 10 },
  { title: "Requests", about: "per second", series: [{ name: "Kafka" }, { name: "HTTP" }], columns: ["kafka_requests", "http_requests"], format: perSecond(short), axis: short, least: 10 },
  LATENCY,
  { title: "Consumer lag", about: "records of all groups", series: [{ name: "Lag" }], columns: ["lag_records"], format: short, least: 10 },
  { title: "Connections", series: [{ name: "Kafka" }, { name: "Streams" }], columns: ["kafka_connections", "streams"], format: number, least: 10 },
  MEMORY,
  EVENT_LOOP,
];

const BRIDGE_CHARTS = [
  { title: "Traffic with the cluster", about: "bytes per second", series: [{ name: "From" }, { name: "To" }], columns: ["upstream_received_bytes", "upstream_sent_bytes"], format: perSecond(bytes), axis: bytes, binary: true, least: 1024 },
  { title: "Traffic of streams", about: "bytes per second", series: [{ name: "In" }, { name: "Out" }], columns: ["stream_received_bytes", "stream_sent_bytes"], format: perSecond(bytes), axis: bytes, binary: true, least: 1024 },
  { title: "Requests", about: "per second", series: [{ name: "HTTP" }], columns: ["http_requests"], format: perSecond(short), axis: short, least: 10 },
  { ...LATENCY, about: "of HTTP, without streams" },
  { title: "Subscribers", series: [{ name: "Subscribers" }, { name: "Streams" }], columns: ["subscribers", "streams"], format: number, least: 10 },
  { title: "Waiting for the cluster", about: "bytes of events", series: [{ name: "Waiting" }], columns: ["upstream_waiting_bytes"], format: bytes, binary: true, least: 1024 },
  MEMORY,
  EVENT_LOOP,
];

// The key figures of a server and of a bridge: what each shows, and where it leads.
const SERVER_FIGURES = {
  topics: { name: "Topics", href: url("/topics") },
  groups: { name: "Groups" },
  rooms: { name: "Rooms", href: url("/rooms") },
  webhooks: { name: "Webhooks", href: url("/webhooks") },
  lag: { name: "Consumer lag" },
  stored: { name: "Disk" },
};
const BRIDGE_FIGURES = {
  rooms: { name: "Rooms", href: url("/rooms") },
  streams: { name: "Streams" },
  connections: { name: "Connections to brokers" },
  cache: { name: "Cache" },
};

export async function render(element, view) {
  const isBridge = about.engine === "bridge";
  const chosen = isBridge ? BRIDGE_FIGURES : SERVER_FIGURES;
  const chartsShown = isBridge ? BRIDGE_CHARTS : SERVER_CHARTS;
  const figures = Object.fromEntries(Object.entries(chosen).map(([id, one]) => [id, keyFigure(one)]));
  const charts = chartsShown.map((one) => lineChart({ ...one, windowMs: WINDOW_MS }));
  const state = h("span", {});
  const warnings = h("div", { class: "stack" });
  const place = h(
    "div",
    { class: "stack" },
    warnings,
    keyFigures("Key figures", Object.values(figures)),
    h("div", { class: "grid-charts" }, charts.map((one) => one.element)),
    commandHint({ ...(!isBridge && { kwire: "kwire cluster info" }), curl: `curl ${location.origin}/overview` }).element,
  );
  show(element, pageHeader({ title: "Overview", badges: [state], about: "The last ten minutes, live." }), place);

  const samples = new SampleWindow();
  let interval = 2000;
  const update = async () => {
    const answer = await get(`/overview${query({ after: samples.newest })}`, { signal: view.signal });
    interval = answer.interval_ms;
    samples.add(answer.samples, answer.window_ms);
    (isBridge ? drawBridgeFigures : drawServerFigures)(figures, answer);
    show(state, badge(answer.is_ready ? "Ready" : "Starting", answer.is_ready ? "good" : "warn"));
    show(warnings, answer.warnings.map((text) => notice(text, "bad")));
    for (const [index, { columns }] of chartsShown.entries()) {
      charts[index].update(samples.times, columns.map((name) => samples.column(name)));
    }
  };
  view.every(interval, async () => {
    try {
      await update();
    } catch (error) {
      // While the server does not answer, the banner says so and the charts stay.
      if (error.status) show(place, failure(error, () => location.reload()));
      else if (error.code !== "NoAnswer") throw error;
    }
  });
}

function drawBridgeFigures(figures, { now, ...answer }) {
  figures.rooms.set(number(answer.rooms), count(answer.subscribers, "subscriber"));
  if (now === null) return;
  figures.streams.set(number(now.streams), "WebSockets and others");
  figures.connections.set(number(now.upstream_connections), "", now.upstream_connections ? "" : "bad");
  figures.cache.set(bytes(now.cache_bytes), "batches for readers");
}

function drawServerFigures(figures, answer) {
  const { now } = answer;
  figures.topics.set(number(answer.topics), topicsAbout(answer));
  figures.groups.set(number(answer.groups), answer.groups === 1 ? "consumer group" : "consumer groups");
  figures.rooms.set(number(answer.rooms), count(answer.subscribers, "subscriber"));
  figures.webhooks.set(answer.webhooks === null ? "off" : number(answer.webhooks), answer.dead_letters ? count(answer.dead_letters, "dead letter") : "", answer.dead_letters ? "warn" : "");
  // The first sample is taken two seconds after the start.
  if (now === null) return;
  figures.lag.set(short(now.lag_records), "records");
  if (now.disk_used_bytes === null) return;
  const size = now.disk_used_bytes + now.disk_free_bytes;
  const share = now.disk_used_bytes / size;
  figures.stored.set(percent(share), `${bytes(now.disk_free_bytes)} free`, share > 0.92 ? "bad" : share > 0.8 ? "warn" : "");
}

// A narrow figure breaks the line between the two counts only.
const topicsAbout = ({ partitions, internal_topics: internal }) =>
  [count(partitions, "partition"), internal && `and ${count(internal, "internal topic")}`].filter(Boolean).map((one) => one.replaceAll(" ", "\u00a0")).join(" ");

// The samples of the last minutes, by column. Each answer adds the samples since the one before.
class SampleWindow {
  constructor() {
    this.columns = {};
  }

  get times() {
    return this.columns.time_ms ?? [];
  }

  get newest() {
    return this.times.at(-1);
  }

  column(name) {
    return this.columns[name] ?? [];
  }

  add(columns, windowMs) {
    const newest = columns.time_ms.at(-1) ?? this.newest;
    // A gap of a whole window, or a server that was started again, begins a new chart.
    const isContinued = this.newest === undefined || columns.time_ms.every((one) => one > this.newest);
    if (!isContinued) this.columns = {};
    const old = this.times.filter((one) => one < newest - windowMs).length;
    for (const [name, values] of Object.entries(columns)) {
      this.columns[name] = [...(this.columns[name] ?? []).slice(old), ...values];
    }
  }
}
