// A live table of events: newest on top, with a pause. Rooms and the event store use it.
import { h, setText, show } from "./dom.js";
import { button, emptyState, notice } from "./elements.js";
import { EventFeed } from "./event_feed.js";
import { count, number } from "./format.js";
import { dataTable } from "./table.js";

// The events that the page keeps; older ones are dropped.
export const KEPT_MAX = 1_000;

const STATES = { connecting: ["Connecting", ""], live: ["Live", "good"], reconnecting: ["Reconnecting", "warn"], ended: ["Ended", "bad"] };

// liveEvents({view, feed: options of EventFeed, columns, key, open(event, events), openName, filter}) -> element
export function liveEvents({ view, feed: options, columns, key, open, openName, filter }) {
  let shown = [];
  let isPaused = false;
  let isPressed = false;
  const state = h("span", { role: "status" });
  const figures = h("span", { class: "table-count" });
  const problem = h("div", { class: "stack" });
  const pause = button("Pause", () => toggle(), { icon: "pause" });
  const clear = button("Clear", () => { feed.clear(); shown = []; table.setRows([]); }, { kind: "quiet" });
  const table = dataTable({
    label: "Live events",
    noun: "event",
    view,
    rows: [],
    isClipped: true,
    columns,
    key,
    open: (one) => open(one, shown),
    openName,
    filter,
    empty: emptyState({ icon: "clock", title: "Waiting for events", text: "New events appear here as they are published." }),
    tools: [state, figures, pause, clear],
  });
  const feed = new EventFeed({ ...options, keptMax: KEPT_MAX, signal: view.signal, onChange: draw });
  let seen = 0;

  function toggle() {
    isPaused = !isPaused;
    show(pause, ...button(isPaused ? "Resume" : "Pause", null, { icon: isPaused ? "play" : "pause" }).childNodes);
    draw();
  }

  // While a mouse button is pressed, rows stay as they are: otherwise a click would hit another row.
  function draw() {
    if (view.signal.aborted) return;
    if (isPressed) return void setTimeout(draw, 50);
    const [text, kind] = isPaused ? ["Paused", "warn"] : STATES[feed.state];
    setText(state, text);
    state.className = `badge ${kind}`;
    if (!isPaused) {
      seen = feed.received;
      shown = feed.events.slice(-KEPT_MAX).reverse();
      table.setRows(shown);
    }
    const waiting = feed.received - seen;
    setText(figures, waiting ? `${number(waiting)} new` : "");
    show(problem, [
      feed.error && notice(feed.error.message, "bad"),
      feed.gaps > 0 && notice(`${count(feed.gaps, "gap")}: events that this page could not follow were left out.`, "warn"),
      feed.received > KEPT_MAX && notice(`The page keeps the newest ${number(KEPT_MAX)} of ${number(feed.received)} events.`),
    ].filter(Boolean));
  }

  table.element.addEventListener("pointerdown", () => (isPressed = true));
  for (const event of ["pointerup", "pointercancel"]) view.on(window, event, () => setTimeout(() => (isPressed = false)));
  draw();
  return h("div", { class: "stack" }, table.element, problem);
}
