// A subscription to events as a bounded list. It reconnects, and continues after the last event that it has received.
import { isAborted, lines, query } from "./api.js";
import { parseExact } from "./json.js";

const RECONNECT_MS = 2_000;
const DRAW_MS = 200;
// Codes of the control message `closed` after which a subscription cannot continue.
const FINAL = ["Forbidden", "RoomNotFound", "TopicNotFound"];

// new EventFeed({path: "/rooms/lobby/subscribe", start: {from_offset: -50}, placeOf: (event) => event.offset,
//                resumeAt: (place) => ({from_offset: place}), keptMax: 1000, signal, onChange})
// `state` is connecting, live, reconnecting or ended; `error` is why it has ended. `events` are the newest ones, oldest
// first; `received` counts all. `onChange` is called at most five times per second.
export class EventFeed {
  constructor({ path, start, placeOf, resumeAt, keptMax, signal, onChange }) {
    Object.assign(this, { path, start, placeOf, resumeAt, keptMax, signal, onChange });
    this.events = [];
    this.received = 0;
    this.gaps = 0;
    this.state = "connecting";
    this.error = null;
    this._epoch = undefined;
    this._next = undefined;
    this._timer = 0;
    this._run();
  }

  clear() {
    this.events = [];
    this._changed();
  }

  async _run() {
    while (!this.signal.aborted && this.state !== "ended") {
      const from = this._next === undefined ? this.start : { ...this.resumeAt(this._next), epoch: this._epoch };
      try {
        await lines(`${this.path}${query({ on_lag: "drop", ...from })}`, { signal: this.signal, onLine: (one) => this._take(one), parse: parseExact });
      } catch (error) {
        if (isAborted(error)) return;
        // An answer with a status refuses the subscription. Without one, the server did not answer.
        if (error.status >= 400 && error.status < 500 && error.status !== 429) this._end(error);
        else if (!error.status && error.code !== "NoAnswer") throw error;
      }
      if (this.state === "ended") return;
      this._set("reconnecting");
      await new Promise((resume) => {
        const timer = setTimeout(resume, RECONNECT_MS);
        this.signal.addEventListener("abort", () => { clearTimeout(timer); resume(); }, { once: true });
      });
    }
  }

  _take(one) {
    if (one.control === undefined) {
      this._next = this.placeOf(one) + 1;
      this.received += 1;
      this.events.push(one);
      // Cut in large steps, so that an event costs little.
      if (this.events.length > this.keptMax * 1.25) this.events = this.events.slice(-this.keptMax);
      this._changed();
    } else if (one.control === "subscribed") {
      this._epoch = one.epoch;
      if (one.recovered === false) this.events = [];
      this._set("live");
    } else if (one.control === "gap") {
      this.gaps += 1;
      this._changed();
    } else if (one.control === "closed" && FINAL.includes(one.code)) {
      this._end(new Error(one.reason || one.code));
    }
  }

  _end(error) {
    this.error = error;
    this._set("ended");
  }

  _set(state) {
    this.state = state;
    this._changed();
  }

  _changed() {
    this._timer ||= setTimeout(() => {
      this._timer = 0;
      if (!this.signal.aborted) this.onChange();
    }, DRAW_MS);
  }
}
