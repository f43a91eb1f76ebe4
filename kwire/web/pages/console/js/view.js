// A shown page: its parameters, and what ends when the page is left.
import { isAborted } from "./api.js";

export class View {
  constructor({ params, query, path }, setTitle) {
    this.params = params;
    this.query = query;
    this.path = path;
    this.setTitle = setTitle;
    this._abort = new AbortController();
    // Aborted when the page is left. Pass it to every request.
    this.signal = this._abort.signal;
  }

  leave() {
    this._abort.abort();
  }

  // Calls `run` now and then every `ms` until the page is left, never twice at once, and not while the window is
  // hidden. `run` handles its own errors.
  every(ms, run) {
    let timer;
    const tick = async () => {
      clearTimeout(timer);
      if (this.signal.aborted) return;
      try {
        if (!document.hidden) await run();
      } catch (error) {
        // While the server does not answer, the console says so at the top of the page. A later call may succeed.
        if (!isAborted(error) && error.code !== "NoAnswer") throw error;
      }
      if (!this.signal.aborted) timer = setTimeout(tick, ms);
    };
    document.addEventListener("visibilitychange", () => !document.hidden && tick(), { signal: this.signal });
    tick();
  }

  // Registers a listener that is removed when the page is left.
  on(target, event, listener, options = {}) {
    target.addEventListener(event, listener, { ...options, signal: this.signal });
  }
}
