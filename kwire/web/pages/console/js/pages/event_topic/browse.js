// The stored events of a topic of the event store, in pages, with the filters of the server.
import { get, query } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, setText, show } from "../../dom.js";
import { button, emptyState, notice } from "../../elements.js";
import { field } from "../../form.js";
import { count, number } from "../../format.js";
import { parseExact } from "../../json.js";
import { setQuery } from "../../router.js";
import { dataTable } from "../../table.js";
import { curl } from "../topic/commands.js";
import { storeTable } from "./events.js";

const PAGE = 100;
// The events that the page keeps.
const KEPT_MAX = 5_000;
// The server examines a limited number of events per request, so a page of a day may be empty. Then the next is loaded.
const EMPTY_PAGES_MAX = 20;
const ORDERS = [["backwards", "newest first"], ["forwards", "oldest first"]];

export async function browseTab(element, topic, view) {
  let events = [];
  let next = null;
  const fields = {
    order: field({ name: "order", label: "Order", type: "select", options: ORDERS, value: view.query.order ?? "backwards" }),
    date: field({ name: "date", label: "Day (UTC)", type: "date", value: view.query.date ?? "" }),
    since: field({ name: "since", label: "After event", placeholder: `${topic.name}-1`, value: view.query.since ?? "" }),
    before: field({ name: "before", label: "Before event", placeholder: `${topic.name}-100`, value: view.query.before ?? "" }),
  };
  const { open, ...options } = storeTable();
  // The address names the event beside the list, so it can be sent to others.
  const openOne = (one) => {
    const more = { onShow: (shown) => setQuery({ event: shown.id }), onClose: () => setQuery({ event: "" }) };
    open(one, events.includes(one) ? events : [one], more);
  };
  const table = dataTable({
    label: "Events",
    noun: "event",
    view,
    ...options,
    isClipped: true,
    open: openOne,
    empty: emptyState({ icon: "events", title: "No events", text: "No stored event matches. Another day or range may have some." }),
  });
  const problem = h("div", {});
  const more = button("Load more", () => load(), { icon: "down" });
  const state = h("span", { class: "muted" });
  const hint = commandHint("");

  const isBackwards = () => fields.order.read() === "backwards";
  function search(from) {
    const range = { sinceEventId: fields.since.read(), beforeEventId: fields.before.read() };
    if (from) range[isBackwards() ? "beforeEventId" : "sinceEventId"] = from;
    return `/topics/${encodeURIComponent(topic.name)}/events${query({ order: fields.order.read(), date: fields.date.read(), ...range, limit: PAGE })}`;
  }
  async function load() {
    more.disabled = true;
    setText(state, "Loading");
    try {
      let found = [];
      for (let pages = 0; !found.length && pages < EMPTY_PAGES_MAX && (pages === 0 || next); pages += 1) {
        const page = await get(search(next), { signal: view.signal, parse: parseExact });
        found = page.events;
        next = page.next;
      }
      events = [...events, ...found];
      show(problem);
      table.setRows(events);
      more.hidden = next === null || events.length >= KEPT_MAX;
      setText(state, next === null ? "" : events.length >= KEPT_MAX ? `The page shows at most ${count(KEPT_MAX, "event")}.` : `${number(events.length)} loaded`);
    } catch (error) {
      if (!error.status) throw error;
      more.hidden = true;
      setText(state, "");
      show(problem, notice(error.message, "bad"));
    } finally {
      more.disabled = false;
    }
  }
  function start() {
    events = [];
    next = null;
    const values = Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, one.read()]));
    setQuery({ ...values, order: isBackwards() ? "" : "forwards" });
    hint.set({
      kwire: line(
        "kwire", "event", "list", topic.name,
        values.since && ["--since", values.since], values.before && ["--before", values.before], values.date && ["--date", values.date],
        isBackwards() && "--newest-first", "--limit", String(PAGE),
      ),
      curl: curl(search(null)),
    });
    return load();
  }
  const form = h(
    "form",
    { class: "card browse", novalidate: true, "aria-label": "Filters" },
    h("div", { class: "card-body" }, h("div", { class: "fields compact" }, Object.values(fields).map((one) => one.element))),
    h("div", { class: "browse-foot" }, button("Browse", null, { kind: "primary", type: "submit", icon: "search" }), more, state),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  for (const one of [fields.order, fields.date]) one.control.addEventListener("change", start);
  show(element, form, problem, table.element, hint.element);
  // Opening an event changes the query, so it is read before the events are loaded.
  const wanted = view.query.event;
  await start();
  const readOne = () => get(`/events/${encodeURIComponent(wanted)}`, { signal: view.signal, parse: parseExact });
  if (wanted) openOne(events.find((one) => one.id === wanted) ?? (await readOne()));
}
