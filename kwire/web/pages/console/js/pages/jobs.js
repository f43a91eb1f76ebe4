// The Spark jobs of the data pipeline that have reported to the room kwire.jobs.
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, emptyState, failure, keyFigure, keyFigures, pageHeader } from "../elements.js";
import { NONE, duration, number, perSecond, short, time } from "../format.js";
import { url } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { ROOM, Reports, durationOf, shownFiguresOf, sourceOf, stateOf } from "./jobs/reports.js";

const REFRESH_MS = 2_000;
const DAY_MS = 86_400_000;
const KINDS = { running: "info", idle: "", done: "good", stopped: "", failed: "bad", silent: "warn" };

export const title = "Spark jobs";

export const stateBadge = (state) => badge(state, KINDS[state] ?? "");
// Slow is not the same as nothing: 0.4 -> "<1/s", 0 -> "0/s".
export const rate = (value) => (value === "" || value === null || value === undefined ? NONE : value > 0 && value < 1 ? "<1/s" : perSecond(short)(value));
export const amount = (value) => (value === "" || value === null ? NONE : number(value));

export async function render(element, view) {
  const reports = new Reports();
  const figures = {
    running: keyFigure({ name: "Running" }),
    failed: keyFigure({ name: "Failed" }),
    processed: keyFigure({ name: "Processed" }),
    lag: keyFigure({ name: "Lag" }),
  };
  const table = runTable(view);
  const place = h("div", { class: "stack" }, keyFigures("Jobs", Object.values(figures)), table.element, commandHint(line("kwire", "room", "tail", ROOM, "--from-offset", "-20")).element);
  show(element, pageHeader({ title: "Spark jobs", about: "Jobs of kwire pipeline, as they report to the room kwire.jobs." }), place);
  view.every(REFRESH_MS, async () => {
    try {
      await reports.update(view.signal);
      const rows = reports.runs.map((run) => ({ ...run, ...shownFiguresOf(run), shown: stateOf(run) }));
      table.setRows(rows);
      drawFigures(figures, rows);
    } catch (error) {
      if (!error.code) throw error;
      if (error.status) show(place, failure(error, () => location.reload()));
    }
  });
}

function drawFigures(figures, rows) {
  const running = rows.filter((one) => one.shown === "running");
  const silent = rows.filter((one) => one.shown === "silent").length;
  const failed = rows.filter((one) => one.shown === "failed" && Date.now() - Date.parse(one.ended_at) < DAY_MS).length;
  const sum = (name) => running.reduce((total, one) => total + (one[name] ?? 0), 0);
  figures.running.set(number(running.length), silent ? `${number(silent)} silent` : "jobs", silent ? "warn" : "");
  figures.failed.set(number(failed), "in the last 24 hours", failed ? "bad" : "");
  figures.processed.set(rate(sum("processed")), `${rate(sum("input"))} arrive`);
  figures.lag.set(amount(sum("lag")), "events of running jobs");
}

function runTable(view) {
  return dataTable({
    label: "Spark jobs",
    noun: "run",
    view,
    columns: [
      { name: "Job", value: (one) => one.job, width: "6.5rem" },
      { name: "State", value: (one) => one.shown, render: (one) => stateBadge(one.shown), width: "6rem" },
      { name: "Reads", value: sourceOf, width: "16rem", hideBelow: 640 },
      { name: "Input", value: (one) => one.input, text: rate, kind: "number", width: "5.5rem", hideBelow: 900 },
      { name: "Processed", value: (one) => one.processed, text: rate, kind: "number", width: "6rem", hideBelow: 900 },
      { name: "Lag", value: (one) => one.lag, text: amount, kind: "number", width: "5rem" },
      { name: "Duration", value: durationOf, text: duration, kind: "number", width: "7rem", hideBelow: 1200 },
      { name: "Started", value: (one) => Date.parse(one.started_at), text: time, kind: "number", width: TIME_WIDTH, hideBelow: 640 },
    ],
    key: (one) => one.run,
    href: (one) => url("/jobs", one.run),
    filter: (one) => `${one.job} ${one.shown} ${sourceOf(one)} ${one.host} ${one.warehouse ?? ""}`,
    sort: "-Started",
    empty: emptyState({ icon: "jobs", title: "No jobs yet", text: "A job of kwire pipeline appears here when it runs." }),
  });
}
