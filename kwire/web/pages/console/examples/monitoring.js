// Machines publish their load to a room; the page draws it. `kwire example monitoring` reports the machine it runs on.
import { lineChart } from "../js/chart.js";
import { commandHint } from "../js/command.js";
import { h, show } from "../js/dom.js";
import { badge, emptyState, keyFigure, keyFigures, pageHeader } from "../js/elements.js";
import { bytes, number, percent, seconds, short } from "../js/format.js";
import { dataTable } from "../js/table.js";
import { client, roomState, showError } from "./room.js";

const ROOM = "system-events";
const HISTORY_EVENTS = 900;
const REPORTS_MAX = 3_600;
const WINDOW_MS = 5 * 60_000;
const SILENT_MS = 10_000;
const STEP_MS = 1_000;
const REDRAW_MS = 1_000;
// The charts have a colour for each of these machines. The table has all of them.
const CHARTED_MAX = 4;
const CHARTS = [
  { title: "CPU", about: "share of all cores", column: "cpu", format: percent, least: 1 },
  { title: "Memory", about: "in use", column: "memory", format: percent, least: 1 },
  { title: "Load", about: "average of one minute", column: "load", format: short, least: 1 },
];

export async function render(element, query) {
  const room = query.get("room") ?? ROOM;
  const state = roomState();
  const error = h("div", {});
  const reports = new Reports();
  const figures = {
    machines: keyFigure({ name: "Machines" }),
    cpu: keyFigure({ name: "Highest CPU" }),
    memory: keyFigure({ name: "Least memory" }),
    high: keyFigure({ name: "Reports of high load" }),
  };
  const charts = h("div", { class: "grid-3" });
  const table = machineTable();
  show(
    element,
    pageHeader({ title: "Monitoring", badges: [state.element], about: `Reports in the room ${room}, live.` }),
    h("div", { class: "stack" }, error, keyFigures("Machines", Object.values(figures)), charts, table.element, commandHint(`kwire example monitoring --room ${room} --http ${location.origin}`, { label: "Report another machine" }).element),
  );
  let drawn = null;
  const draw = () => {
    const machines = reports.machines();
    const charted = machines.slice(0, CHARTED_MAX).map((one) => one.host);
    if (drawn === null || drawn.hosts.join() !== charted.join()) {
      const made = CHARTS.map((one) => lineChart({ ...one, series: charted.length ? charted.map((name) => ({ name })) : [{ name: "" }], windowMs: WINDOW_MS }));
      drawn = { hosts: charted, made };
      show(charts, made.map((one) => one.element));
    }
    const { times, values } = reports.columns(charted);
    for (const [index, { column }] of CHARTS.entries()) drawn.made[index].update(times, charted.length ? values[column] : [[]]);
    drawFigures(figures, machines, reports.highCount);
    table.setRows(machines);
  };
  draw();
  setInterval(() => !document.hidden && draw(), REDRAW_MS);
  try {
    for await (const item of await client.stream.subscribe(room, { fromOffset: -HISTORY_EVENTS, replay: true })) {
      if (item.kind === "event") reports.add(item);
      else if (item.kind === "caught_up") {
        state.setLive();
        draw();
      }
    }
  } catch (failed) {
    state.setError();
    showError(error, failed);
  }
}

class Reports {
  constructor() {
    this._all = [];
    this.highCount = 0;
  }

  add({ type, data, timestamp }) {
    if (typeof data?.host !== "string") return;
    const { host, cpu = null, load = null, free_bytes: free = null, total_bytes: total = null } = data;
    const memory = free !== null && total ? 1 - free / total : null;
    this._all.push({ host, cpu, load, free, memory, at: Date.parse(timestamp), isHigh: type === "load.high" });
    this.highCount += type === "load.high" ? 1 : 0;
    if (this._all.length > REPORTS_MAX) this._all.splice(0, this._all.length - REPORTS_MAX);
  }

  // The newest report of each machine, by name.
  machines() {
    const found = new Map();
    for (const one of this._all) found.set(one.host, one);
    return [...found.values()].sort((one, other) => (one.host < other.host ? -1 : 1));
  }

  // The values of each host in steps of STEP_MS. A machine keeps its last value until it has been silent for a while.
  columns(hosts) {
    const newest = this._all.at(-1)?.at ?? 0;
    const steps = new Map();
    for (const report of this._all) {
      if (report.at <= newest - WINDOW_MS) continue;
      const time = Math.floor(report.at / STEP_MS) * STEP_MS;
      if (!steps.has(time)) steps.set(time, new Map());
      steps.get(time).set(report.host, report);
    }
    const values = Object.fromEntries(CHARTS.map(({ column }) => [column, hosts.map(() => [])]));
    const last = new Map();
    for (const [time, reports] of steps) {
      for (const [host, report] of reports) last.set(host, report);
      for (const [index, host] of hosts.entries()) {
        const known = last.get(host);
        const isFresh = known !== undefined && time - known.at <= SILENT_MS;
        for (const { column } of CHARTS) values[column][index].push(isFresh ? known[column] : null);
      }
    }
    return { times: [...steps.keys()], values };
  }
}

const isSilent = (one) => Date.now() - one.at > SILENT_MS;
const most = (values) => (values.length ? Math.max(...values) : null);

function drawFigures(figures, machines, highCount) {
  const live = machines.filter((one) => !isSilent(one));
  const free = live.map((one) => one.free).filter((one) => one !== null);
  figures.machines.set(number(machines.length), `${number(machines.length - live.length)} silent`, machines.length > live.length ? "warn" : "");
  figures.cpu.set(percent(most(live.map((one) => one.cpu).filter((one) => one !== null))), "of all cores");
  figures.memory.set(bytes(free.length ? Math.min(...free) : null), "available");
  figures.high.set(number(highCount), "in the reports shown", highCount ? "warn" : "");
}

function machineTable() {
  return dataTable({
    label: "Machines",
    noun: "machine",
    columns: [
      { name: "Machine", value: (one) => one.host },
      { name: "State", value: (one) => (isSilent(one) ? "silent" : one.isHigh ? "high load" : "ok"), render: stateOf, width: "8rem" },
      { name: "CPU", value: (one) => one.cpu, text: shown(percent), kind: "number", width: "6rem" },
      { name: "Load", value: (one) => one.load, text: shown(short), kind: "number", width: "6rem", hideBelow: 640 },
      { name: "Available memory", value: (one) => one.free, text: shown(bytes), kind: "number", width: "10rem", hideBelow: 640 },
      { name: "Last report", value: (one) => one.at, text: (at) => `${seconds(Math.max(0, Math.round((Date.now() - at) / 1000)))} ago`, kind: "number", width: "9rem", hideBelow: 900 },
    ],
    key: (one) => one.host,
    sort: "Machine",
    empty: emptyState({ icon: "server", title: "No reports yet", text: "A report appears here when a machine publishes one." }),
  });
}

const shown = (format) => (value) => format(value === "" ? null : value);
const stateOf = (one) => (isSilent(one) ? badge("silent", "warn") : one.isHigh ? badge("high load", "bad") : badge("ok", "good"));
