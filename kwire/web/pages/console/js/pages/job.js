// One run of a Spark job: rates, lag and the state of its queries.
import { lineChart } from "../chart.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { card, emptyState, facts, failure, keyFigure, keyFigures, notice, pageHeader } from "../elements.js";
import { NONE, count, duration, seconds, short, time } from "../format.js";
import { url } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { amount, rate, stateBadge } from "./jobs.js";
import { ROOM, Reports, durationOf, shownFiguresOf, shownQueryOf, sourceOf, stateOf } from "./jobs/reports.js";

const REFRESH_MS = 2_000;
const CHARTS = [
  { title: "Rows/s", series: [{ name: "Input" }, { name: "Processed" }], columns: ["input", "processed"], format: short, least: 10 },
  { title: "Lag", about: "events not read", series: [{ name: "Lag" }], columns: ["lag"], format: short, least: 10 },
  { title: "Batch", about: "duration of the longest", series: [{ name: "Duration" }], columns: ["duration"], format: (ms) => seconds(ms === null ? null : ms / 1000), least: 100 },
];

export const title = "Spark job";

export async function render(element, view) {
  const reports = new Reports();
  await reports.update(view.signal);
  const run = () => reports.run(view.params.run);
  const parents = [["Spark jobs", url("/jobs")]];
  if (!run()?.started_at) {
    show(element, pageHeader({ title: "Spark job", parents }), emptyState({ icon: "jobs", title: "There is no such run", text: `The room ${ROOM} has no report of it.` }));
    return;
  }
  const state = h("span", { class: "row" });
  const error = h("div", { class: "stack" });
  const figures = {
    processed: keyFigure({ name: "Processed" }),
    lag: keyFigure({ name: "Lag" }),
    events: keyFigure({ name: "Events read" }),
    duration: keyFigure({ name: "Duration" }),
  };
  const charts = CHARTS.map((one) => lineChart(one));
  const queries = queryTable();
  const about = h("div", {});
  const chartRow = h("div", { class: "grid-3" }, charts.map((one) => one.element));
  const progress = h("div", { class: "stack" }, chartRow, queries.element);
  const place = h(
    "div",
    { class: "stack" },
    error,
    keyFigures("Job", Object.values(figures)),
    progress,
    card({ title: "Run" }, about),
    commandHint(line("kwire", "room", "tail", ROOM, "--from-offset", "-20")).element,
  );
  show(element, pageHeader({ title: run().job, parents, badges: [state], about: sourceOf(run()) }), place);
  view.setTitle(run().job);
  const draw = () => {
    const now = run();
    const shown = stateOf(now);
    show(state, stateBadge(shown));
    show(error, now.error && notice(now.error, "bad"), shown === "silent" && notice(`No report since ${time(now.at)}. The process may have been killed, or cannot reach this server.`, "warn"));
    drawFigures(figures, now);
    // A job that has ended without a batch, or so long ago that its figures are no longer read, has none to show.
    progress.hidden = now.state !== "running" && now.points.length === 0;
    // A line needs two points, and a job that has ended reports no more of them.
    chartRow.hidden = now.state !== "running" && now.points.length < 2;
    for (const [index, { columns }] of CHARTS.entries()) charts[index].update(now.points.map((one) => one.at), columns.map((name) => now.points.map((one) => one[name])));
    queries.setRows([...now.queries.values()].map((one) => shownQueryOf(one, now)));
    show(about, facts(factsOf(now)));
  };
  view.every(REFRESH_MS, async () => {
    try {
      await reports.update(view.signal);
      if (run()) draw();
    } catch (failed) {
      if (!failed.code) throw failed;
      if (failed.status) show(place, failure(failed, () => location.reload()));
    }
  });
}

function drawFigures(figures, run) {
  const { input, processed, lag, events, batches } = shownFiguresOf(run);
  figures.processed.set(rate(processed), run.ended_at ? "mean of the run" : input === null ? "" : `${rate(input)} arrive`);
  figures.lag.set(amount(lag), "events not read", lag && run.state === "running" ? "warn" : "");
  figures.events.set(amount(events), batches === null ? "" : count(batches, "batch", "batches"));
  figures.duration.set(duration(durationOf(run)), run.ended_at ? `ended ${time(Date.parse(run.ended_at))}` : `since ${time(Date.parse(run.started_at))}`);
}

function factsOf(run) {
  return [
    ["Run", h("span", { class: "mono" }, run.run)],
    ["Process", `${run.pid} on ${run.host}`],
    ["Started", time(Date.parse(run.started_at))],
    ["Last report", time(run.at)],
    [run.pattern ? "Pattern" : "Topics", sourceOf(run) || NONE],
    run.warehouse && ["Warehouse", run.warehouse],
    ["Ends", run.is_bounded ? "when all events of its start are read" : "when it is stopped"],
  ];
}

function queryTable() {
  return dataTable({
    label: "Queries",
    noun: "query",
    columns: [
      { name: "Query", value: (one) => one.query, width: "12rem" },
      { name: "State", value: (one) => one.state, render: (one) => h("span", { title: one.error }, stateBadge(one.state)), width: "6rem" },
      { name: "Batch", value: (one) => one.batch_id, text: amount, kind: "number", width: "4.5rem", hideBelow: 900 },
      { name: "Took", value: (one) => one.duration_ms, text: (ms) => seconds(ms / 1000), kind: "number", width: "5.5rem", hideBelow: 900 },
      { name: "Input", value: (one) => one.input_rows_per_second, text: rate, kind: "number", width: "5.5rem", hideBelow: 640 },
      { name: "Processed", value: (one) => one.processed_rows_per_second, text: rate, kind: "number", width: "6rem", hideBelow: 640 },
      { name: "Lag", value: (one) => one.lag_events, text: amount, kind: "number", width: "5rem" },
      { name: "Events read", value: (one) => one.read_events, text: amount, kind: "number", width: "6.5rem", hideBelow: 640 },
      { name: "Watermark", value: (one) => (one.watermark ? Date.parse(one.watermark) : null), text: (at) => time(at), kind: "number", width: TIME_WIDTH, hideBelow: 1200 },
    ],
    key: (one) => one.query,
    sort: "Query",
    empty: emptyState({ icon: "jobs", title: "No batch yet", text: "A query appears here with its first batch." }),
  });
}
