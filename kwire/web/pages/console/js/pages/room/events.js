// The columns of tables of a room's events, and the event beside them.
import { line } from "../../command.js";
import { h } from "../../dom.js";
import { badge } from "../../elements.js";
import { openEvent } from "../../event_detail.js";
import { number, time } from "../../format.js";
import { jsonText } from "../../json.js";
import { MILLISECONDS_WIDTH } from "../../table.js";
import { curl } from "../topic/commands.js";

// The part of an event's data that a row may show.
const PREVIEW_LENGTH = 300;

export const preview = (data) => jsonText(data).slice(0, PREVIEW_LENGTH);

export const roomTable = (room) => ({
  columns: [
    { name: "Offset", value: (one) => one.offset, text: number, kind: "number", width: "5.5rem" },
    { name: "Time", value: (one) => one.timestamp, text: (text) => time(Date.parse(text), { milliseconds: true }), width: MILLISECONDS_WIDTH, hideBelow: 900 },
    { name: "Type", value: (one) => one.type, render: (one) => badge(one.type), width: "10rem", hideBelow: 640 },
    { name: "Data", render: (one) => h("code", { class: "row-text" }, preview(one.data)) },
  ],
  key: (one) => String(one.offset),
  open: (event, events) => openEvent({ event, events, describe: (one) => describe(room, one) }),
  openName: (one) => `Event ${one.offset}`,
  filter: (one) => `${one.type} ${jsonText(one.data)} ${Object.values(one.metadata).join(" ")}`,
});

function describe({ name, path }, event) {
  const at = String(event.offset);
  return {
    title: `Event ${number(event.offset)}`,
    facts: [
      ["Type", badge(event.type)],
      ["Time", time(Date.parse(event.timestamp), { milliseconds: true })],
      ["Offset", number(event.offset)],
      ["Event id", h("code", {}, event.event_id)],
    ],
    dataName: "Data",
    data: event.data,
    metadata: event.metadata,
    commands: { kwire: line("kwire", "room", "history", name, "--from-offset", at, "--to-offset", at), curl: curl(`${path}/events/${at}`) },
  };
}
