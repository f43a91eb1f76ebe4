// The events of the event store as they are committed: of one topic, or of all.
import { commandHint, line } from "../../command.js";
import { show } from "../../dom.js";
import { liveEvents } from "../../live_events.js";
import { curl } from "../topic/commands.js";
import { storeTable } from "./events.js";

// The stored events that are shown first.
const FIRST = 50;

export function liveTab(element, topic, view) {
  const path = `/subscribe/streams/${encodeURIComponent(topic.name)}`;
  draw(element, view, { path, placeOf: (event) => event.version, table: storeTable(), command: ["kwire", "event", "tail", topic.name] });
}

export function allTab(element, view) {
  draw(element, view, { path: "/subscribe/all", placeOf: (event) => event.position, table: storeTable({ hasTopic: true }), command: ["kwire", "event", "tail"] });
}

function draw(element, view, { path, placeOf, table, command }) {
  show(
    element,
    liveEvents({ view, ...table, feed: { path, start: { from: -FIRST }, placeOf, resumeAt: (place) => ({ from: place }) } }),
    commandHint({ kwire: line(...command, "--from", `-${FIRST}`), curl: curl(`${path}?from=-${FIRST}`, "--no-buffer") }).element,
  );
}
