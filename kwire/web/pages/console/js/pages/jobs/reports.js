// The reports of Spark jobs, read from the room kwire.jobs: who runs, how far and how fast.
import { get, isAborted, lines, query } from "../../api.js";

export const ROOM = "kwire.jobs";
// Runs that are kept, the newest ones.
const RUNS_MAX = 500;
// Figures are read from this many of the newest reports.
const REPORTS_MAX = 3_000;
const PAGE_EVENTS = 1_000;
// The length of the charts of a job.
const POINTS_MAX = 900;
// A job reports at least every 15 seconds that it is running.
const SILENT_MS = 60_000;
const PATH = `/rooms/${ROOM}`;

export class Reports {
  constructor() {
    this._runs = new Map();
    this._next = null;
  }

  // The runs, newest first.
  get runs() {
    return [...this._runs.values()].filter((one) => one.started_at).sort((one, other) => (one.started_at < other.started_at ? 1 : -1));
  }

  run(id) {
    return this._runs.get(id);
  }

  // Reads the reports since the last call. The first call reads the starts and ends of all jobs, and the newest figures.
  async update(signal) {
    if (this._next === null && !(await this._begin(signal))) return;
    let page;
    do {
      page = await get(`${PATH}/events${query({ from_offset: this._next, limit: PAGE_EVENTS })}`, { signal });
      // The room was deleted and created again.
      if (this._next > page.newest_offset + 1) return this._forget();
      for (const event of page.events) this.add(event);
      this._next = page.next_offset;
    } while (this._next <= page.newest_offset);
  }

  async _begin(signal) {
    const { rooms } = await get(`/rooms${query({ prefix: ROOM, limit: 1 })}`, { signal });
    if (rooms[0]?.room !== ROOM) return false;
    const { oldest_offset: oldest, newest_offset: newest } = await get(PATH, { signal });
    const done = new AbortController();
    try {
      await lines(`${PATH}/subscribe${query({ from_offset: 0, types: "job.report" })}`, {
        signal: AbortSignal.any([signal, done.signal]),
        onLine: (line) => (line.control === "caught_up" ? done.abort() : line.control === undefined && this.add(line)),
      });
    } catch (error) {
      if (!isAborted(error) || signal.aborted) throw error;
    }
    this._next = Math.max(oldest, newest + 1 - REPORTS_MAX);
    return true;
  }

  _forget() {
    this._runs.clear();
    this._next = null;
  }

  add({ type, data, timestamp }) {
    if (typeof data?.run !== "string") return;
    const run = this._runs.get(data.run) ?? { run: data.run, job: data.job, state: "running", queries: new Map(), points: [], at: 0 };
    this._runs.set(data.run, run);
    run.at = Math.max(run.at, Date.parse(timestamp));
    // The start of a job is read again with the figures; it does not undo its end.
    if (type === "job.report" && (data.state !== "running" || run.state === "running")) Object.assign(run, data);
    if (type === "query.report") {
      run.queries.set(data.query, data);
      if (run.points.at(-1)?.at === run.at) run.points.pop();
      run.points = [...run.points, { at: run.at, ...figuresOf(run) }].slice(-POINTS_MAX);
    }
    if (this._runs.size > RUNS_MAX) this._runs.delete(this._runs.keys().next().value);
  }
}

// The figures of a job: sums of its queries. Queries that read the same events count them once.
export function figuresOf({ queries, shares_source: isShared }) {
  const all = [...queries.values()];
  const known = (name) => all.map((one) => one[name]).filter((one) => one !== null && one !== undefined);
  const sum = (values) => values.reduce((total, one) => total + one, 0);
  const of = (name, shared) => {
    const values = known(name);
    if (!values.length) return null;
    return isShared ? shared(...values) : sum(values);
  };
  return {
    input: of("input_rows_per_second", Math.min),
    processed: of("processed_rows_per_second", Math.min),
    lag: of("lag_events", Math.max),
    events: of("read_events", Math.max),
    batches: all.length ? sum(known("batches")) : null,
    duration: known("duration_ms").length ? Math.max(...known("duration_ms")) : null,
  };
}

// The figures that are shown of a job. One that has ended no longer reads: its rate is the mean of its whole run.
export function shownFiguresOf(run) {
  const figures = figuresOf(run);
  const events = figures.events ?? run.read_events ?? null;
  return run.ended_at ? { ...figures, events, input: null, processed: meanRate(events, run) } : { ...figures, events };
}

// The figures of a query as they are shown, like those of its job.
export const shownQueryOf = (query, run) =>
  run.ended_at ? { ...query, input_rows_per_second: null, processed_rows_per_second: meanRate(query.read_events, run) } : query;

const meanRate = (events, run) => (events ? (events * 1000) / Math.max(1, durationOf(run)) : null);

// running, silent, done, stopped or failed. A job that was killed cannot report its end.
export const stateOf = (run) => (run.state === "running" && Date.now() - run.at > SILENT_MS ? "silent" : run.state);

export const durationOf = (run) => (run.ended_at ? Date.parse(run.ended_at) : stateOf(run) === "silent" ? run.at : Date.now()) - Date.parse(run.started_at);

// What a job reads. A lake job without topics reads those with kwire.lake.mode: its queries have their names.
export const sourceOf = ({ topics = [], pattern, queries }) => pattern ?? (topics.length ? topics : [...queries.keys()]).join(", ");
