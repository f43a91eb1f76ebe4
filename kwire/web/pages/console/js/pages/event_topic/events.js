// The columns of tables of stored events, and the event beside them.
import { line } from "../../command.js";
import { h } from "../../dom.js";
import { badge } from "../../elements.js";
import { openEvent } from "../../event_detail.js";
import { number, time } from "../../format.js";
import { jsonText } from "../../json.js";
import { url } from "../../router.js";
import { about } from "../../session.js";
import { MILLISECONDS_WIDTH } from "../../table.js";
import { curl } from "../topic/commands.js";

// The part of a payload that a row may show.
const PREVIEW_LENGTH = 300;

// With `hasTopic`, the rows name the topic of each event.
export const storeTable = ({ hasTopic = false } = {}) => ({
  columns: [
    { name: "Event", value: (one) => one.id, width: hasTopic ? "13rem" : "11rem" },
    { name: "Time", value: (one) => one.timestamp, text: (text) => time(Date.parse(text), { milliseconds: true }), width: MILLISECONDS_WIDTH, hideBelow: 900 },
    { name: "Type", value: (one) => one.type, render: (one) => badge(one.type), width: "13rem", hideBelow: 640 },
    { name: "Payload", render: (one) => h("code", { class: "row-text" }, jsonText(one.payload).slice(0, PREVIEW_LENGTH)) },
  ],
  key: (one) => one.id,
  open: (event, events, more) => openEvent({ event, events, describe, ...more }),
  openName: (one) => `Event ${one.id}`,
  filter: (one) => `${one.id} ${one.type} ${one.key ?? ""} ${jsonText(one.payload)}`,
});

const recordLink = (topic, version, close) =>
  h("a", { class: "button", href: `${url("/topics", topic)}?from=offset&offset=${version}&partition=0`, onclick: close }, "Show the record");

function describe(event, close) {
  const { topic, version } = event;
  const since = version > 0 ? ["--since", `${topic}-${version}`] : [];
  return {
    title: event.id,
    facts: [
      ["Type", badge(event.type)],
      ["Time", time(Date.parse(event.timestamp), { milliseconds: true })],
      ["Topic", h("a", { href: url("/event-store/topics", topic), onclick: close }, topic)],
      ["Version", number(version)],
      event.position !== undefined && ["Global position", number(event.position)],
      event.key !== undefined && ["Key", h("code", {}, event.key)],
    ],
    // Over a cluster, offsets are not versions.
    actions: about.engine === "bridge" ? [] : [recordLink(topic, version, close)],
    dataName: "Payload",
    data: event.payload,
    metadata: event.metadata,
    commands: { kwire: line("kwire", "event", "list", topic, since, "--limit", "1"), curl: curl(`/events/${encodeURIComponent(event.id)}`) },
  };
}
