// The events of a room as they are published.
import { commandHint, line } from "../../command.js";
import { show } from "../../dom.js";
import { liveEvents } from "../../live_events.js";
import { curl } from "../topic/commands.js";
import { roomTable } from "./events.js";

// The stored events that are shown first.
const FIRST = 50;

export function liveTab(element, room, view) {
  const path = `${room.path}/subscribe`;
  show(
    element,
    liveEvents({
      view,
      ...roomTable(room),
      feed: { path, start: { from_offset: -FIRST }, placeOf: (event) => event.offset, resumeAt: (offset) => ({ from_offset: offset }) },
    }),
    commandHint({
      kwire: line("kwire", "room", "tail", room.name, "--from-offset", `-${FIRST}`),
      curl: curl(`${path}?from_offset=-${FIRST}`, "--no-buffer"),
    }).element,
  );
}
