// The stored events of a room, newest first.
import { get, query } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, setText, show } from "../../dom.js";
import { button, emptyState, notice } from "../../elements.js";
import { count } from "../../format.js";
import { parseExact } from "../../json.js";
import { setQuery } from "../../router.js";
import { dataTable } from "../../table.js";
import { roomTable } from "./events.js";

const PAGE = 200;
// The events that the page keeps.
const KEPT_MAX = 5_000;

export async function historyTab(element, room, view) {
  let events = [];
  const until = h("input", { type: "number", min: 0, placeholder: "newest", "aria-label": "Up to offset", value: view.query.until ?? "" });
  const more = button("Load older", () => load(events.at(-1).offset - 1), { icon: "down" });
  const state = h("span", { class: "muted" });
  const problem = h("div", {});
  const { open, ...options } = roomTable(room);
  const table = dataTable({
    label: "History",
    noun: "event",
    view,
    ...options,
    isClipped: true,
    open: (one) => open(one, events),
    empty: emptyState({ icon: "clock", title: "No events", text: "No event is stored in this range." }),
    tools: [h("label", { class: "row tool-field" }, h("span", {}, "Up to offset"), until), button("Refresh", () => start(), { icon: "refresh" })],
  });

  // Loads the page of events that ends at `to`; undefined is the newest event.
  async function load(to) {
    more.disabled = true;
    try {
      const from = to === undefined ? -PAGE : Math.max(0, to - PAGE + 1);
      const page = await get(`${room.path}/events${query({ from_offset: from, to_offset: to, limit: PAGE })}`, { signal: view.signal, parse: parseExact });
      events = [...events, ...page.events.reverse()];
      show(problem);
      table.setRows(events);
      const isEnd = !events.length || events.at(-1).offset <= page.oldest_offset;
      more.hidden = isEnd || events.length >= KEPT_MAX;
      const isFull = events.length >= KEPT_MAX;
      setText(state, isEnd && events.length ? "This is the oldest stored event." : isFull ? `The page shows at most ${count(KEPT_MAX, "event")}.` : "");
    } catch (error) {
      if (!error.status) throw error;
      show(problem, notice(error.message, "bad"));
    } finally {
      more.disabled = false;
    }
  }
  const start = () => {
    events = [];
    setQuery({ until: until.value });
    return load(until.value === "" ? undefined : Number(until.value));
  };
  until.addEventListener("change", start);
  const hint = commandHint(line("kwire", "room", "history", room.name, "--from-offset", `-${PAGE}`));
  show(element, table.element, problem, h("div", { class: "row" }, more, state), hint.element);
  await start();
}
