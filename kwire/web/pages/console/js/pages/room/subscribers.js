// The subscriptions to a room.
import { get, query } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { badge, emptyState, notice } from "../../elements.js";
import { NONE, ago, count, number } from "../../format.js";
import { dataTable } from "../../table.js";

const REFRESH_MS = 2_000;
const SHOWN_MAX = 1_000;
const PROTOCOLS = { websocket: "WebSocket", sse: "Server-Sent Events", ndjson: "JSON lines", internal: "the server" };
const ON_LAG = { terminate: "ends", catchup: "reads the log", drop: "skips events" };

export function subscribersTab(element, room, view) {
  const more = h("div", {});
  const table = dataTable({
    label: "Subscribers",
    noun: "subscriber",
    view,
    columns: [
      { name: "Subscription", value: (one) => one.subscription_id },
      { name: "Client", value: (one) => one.principal, text: (text) => text || NONE, width: "14rem", hideBelow: 900 },
      { name: "Protocol", value: (one) => PROTOCOLS[one.protocol], width: "11rem", hideBelow: 640 },
      { name: "State", value: (one) => one.state, render: (one) => badge(one.state, one.state === "live" ? "good" : "info"), width: "7rem" },
      { name: "Lag", value: (one) => one.lag, text: number, kind: "number", width: "6rem" },
      { name: "If too slow", value: (one) => ON_LAG[one.on_lag], width: "9rem", hideBelow: 1200 },
      { name: "Types", value: (one) => one.types?.join(", ") ?? "all", width: "10rem", hideBelow: 1200 },
      { name: "Since", value: (one) => Date.parse(one.subscribed_at), text: ago, width: "10rem", hideBelow: 640 },
    ],
    key: (one) => one.subscription_id,
    filter: (one) => `${one.subscription_id} ${one.principal ?? ""} ${one.protocol}`,
    sort: "-Since",
    empty: emptyState({ icon: "rooms", title: "No subscribers", text: "Nobody follows this room now." }),
  });
  show(element, table.element, more, commandHint(line("kwire", "room", "describe", room.name)).element);
  view.every(REFRESH_MS, async () => {
    try {
      const { subscribers, subscriber_count: all } = await get(`${room.path}/subscribers${query({ limit: SHOWN_MAX })}`, { signal: view.signal });
      table.setRows(subscribers);
      show(more, all > subscribers.length && notice(`${count(all - subscribers.length, "subscriber")} not shown.`));
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error);
    }
  });
}
