// One browse of the records of a topic: reads the lines of the server and keeps a bounded number of records.
import { isAborted, lines } from "../../../api.js";

// The page keeps at most this number of records, and drops those that it has kept longest.
export const KEPT_MAX = 5_000;
// The page is drawn again at most this often.
const DRAW_MS = 100;

export class Scan {
  // `onChange` is called with this scan, soon after something has changed.
  constructor(topicName, onChange) {
    this._path = `/topics/${encodeURIComponent(topicName)}/records`;
    this._onChange = onChange;
    this._timer = 0;
    this._abort = null;
    this.records = [];
    this.dropped = 0;
    // Increased when the list of records has to be drawn again.
    this.version = 0;
    this._clear();
  }

  _clear() {
    this.progress = null;
    this.end = null;
    this.error = null;
    this.isCancelled = false;
    this.unreadable = 0;
    this.elapsedMs = 0;
    this.startedAt = performance.now();
  }

  get isRunning() {
    return this._abort !== null;
  }

  // Records per second that the server examines.
  get rate() {
    const ms = this.isRunning ? performance.now() - this.startedAt : this.elapsedMs;
    return this.progress && ms > 0 ? (this.progress.scanned * 1000) / ms : 0;
  }

  // Starts a scan. `search` is the query string of GET /topics/{topic}/records. A scan that continues keeps its records.
  async run(search, { signal, isContinued = false }) {
    this.cancel();
    const abort = new AbortController();
    const leave = () => abort.abort();
    signal.addEventListener("abort", leave, { once: true });
    this._abort = abort;
    this._clear();
    if (!isContinued) {
      this.records = [];
      this.dropped = 0;
    }
    this.version += 1;
    this._changed();
    try {
      await lines(`${this._path}${search}`, { signal: abort.signal, onLine: (one) => this._abort === abort && this._take(one) });
    } catch (error) {
      if (!isAborted(error) && this._abort === abort) this.error = error;
    } finally {
      signal.removeEventListener("abort", leave);
      if (this._abort === abort) {
        this._abort = null;
        this.version += 1;
        this.elapsedMs = performance.now() - this.startedAt;
        this._changed();
      }
    }
  }

  // Ends the scan. The server stops when the connection is closed.
  cancel() {
    if (!this._abort) return;
    this._abort.abort();
    this._abort = null;
    this.isCancelled = true;
    this.version += 1;
    this.elapsedMs = performance.now() - this.startedAt;
    this._changed();
  }

  _take({ record, progress, unreadable, end }) {
    if (record) {
      this.version += 1;
      this.records.push(record);
      // In portions, because removing the first element of an array moves all others.
      if (this.records.length >= KEPT_MAX + KEPT_MAX / 10) this._drop();
    }
    if (progress) this.progress = progress;
    if (unreadable) this.unreadable += 1;
    if (end) this.end = end;
    this._changed();
  }

  _drop() {
    const excess = this.records.length - KEPT_MAX;
    if (excess <= 0) return;
    this.version += 1;
    this.dropped += excess;
    this.records.splice(0, excess);
  }

  _changed() {
    this._timer ||= setTimeout(() => {
      this._timer = 0;
      this._drop();
      this._onChange(this);
    }, DRAW_MS);
  }
}
