// The state of the node: version, listeners, data directories, limits, certificates and damage.
import { get } from "../api.js";
import { commandHint } from "../command.js";
import { h, show } from "../dom.js";
import { badge, card, facts, failure, keyFigure, keyFigures, meter, notice, pageHeader } from "../elements.js";
import { bytes, duration, number, percent, time } from "../format.js";
import { dataTable } from "../table.js";

const REFRESH_MS = 5000;
// Certificates that expire earlier are marked.
const EXPIRES_SOON_MS = 30 * 24 * 3600 * 1000;

export const title = "Server";

export async function render(element, view) {
  const place = h("div", { class: "stack" });
  show(element, pageHeader({ title: "Server", about: "The state of this node." }), place);
  view.every(REFRESH_MS, async () => {
    try {
      show(place, content(await get("/admin/node", { signal: view.signal })));
    } catch (error) {
      if (error.status) show(place, failure(error));
      else if (!place.children.length) throw error;
    }
  });
}

function content(node) {
  const uptime = keyFigure({ name: "Uptime", value: duration(node.time_ms - node.started_ms), about: `since ${time(node.started_ms)}` });
  const state = keyFigure({ name: "State", value: node.is_ready ? "Ready" : "Starting", kind: node.is_ready ? "good" : "warn", about: `node ${node.node_id}` });
  return [
    damage(node.damage),
    keyFigures("Node", [
      state,
      uptime,
      keyFigure({ name: "Version", value: node.version, about: "kwire" }),
      keyFigure({ name: "Open logs", value: number(node.open_logs), about: `of at most ${number(node.descriptors.open_logs_max)}` }),
    ]),
    card({ title: "Data directories", flush: true }, directories(node.directories)),
    card({ title: "Listeners", flush: true }, listeners(node.listeners)),
    node.certificates.length > 0 && card({ title: "Certificates", flush: true }, certificates(node)),
    card(
      { title: "Limits and identity" },
      facts([
        ["Cluster id", h("code", {}, node.cluster_id)],
        ["Node id", String(node.node_id)],
        ["Clock of the server", time(node.time_ms)],
        ["File descriptors", number(node.descriptors.limit)],
        ["Logs that may be open", `${number(node.descriptors.open_logs_max)} (configured: ${number(node.descriptors.open_logs_configured)})`],
        ["Connections refused", number(node.descriptors.refused_connections)],
      ]),
    ),
    commandHint({ kwire: "kwire cluster info", doctor: "kwire doctor", curl: `curl ${location.origin}/admin/node` }).element,
  ];
}

function damage({ quarantined, quarantined_ranges: ranges, refusing_logs: refusing, offline_partitions: offline }) {
  const lost = Object.keys(offline);
  return [
    ranges > 0 && notice(`${number(ranges)} ranges of logs cannot be read: ${quarantined.join(", ")}. kwire doctor says what to do.`, "bad"),
    refusing.length > 0 && notice(`Logs that accept no records: ${refusing.join(", ")}.`, "bad"),
    lost.length > 0 && notice(`Partitions that are offline: ${lost.join(", ")}.`, "bad"),
  ];
}

function listeners(rows) {
  const address = (host, port) => (host === null || port === null ? "" : `${host}:${port}`);
  return dataTable({
    label: "Listeners",
    noun: "listener",
    rows,
    columns: [
      { name: "Name", value: (one) => one.name },
      { name: "Bound to", value: (one) => address(one.host, one.port) },
      { name: "Advertised", value: (one) => address(one.advertised_host, one.advertised_port) || "as bound", hideBelow: 640 },
      { name: "Security", render: (one) => badge(one.security_protocol, one.security_protocol.includes("SSL") ? "good" : "") },
    ],
  }).element;
}

function directories(rows) {
  const used = (one) => one.total_bytes - one.free_bytes;
  return dataTable({
    label: "Data directories",
    noun: "directory",
    rows,
    columns: [
      { name: "Directory", value: (one) => one.path },
      {
        name: "Volume",
        render: (one) =>
          one.error === null
            ? meter(used(one) / one.total_bytes, { label: `Used space of ${one.path}`, text: `${percent(used(one) / one.total_bytes)} used, ${bytes(one.free_bytes)} of ${bytes(one.total_bytes)} free` })
            : h("span", { class: "bad-text" }, one.error),
      },
      { name: "State", width: "9rem", hideBelow: 640, render: (one) => (one.error !== null ? badge("offline", "bad") : one.is_reserve_whole ? badge("online", "good") : badge("no disk reserve", "warn")) },
    ],
  }).element;
}

function certificates(node) {
  return dataTable({
    label: "Certificates",
    noun: "certificate",
    rows: node.certificates,
    columns: [
      { name: "Listener", value: (one) => one.listener },
      {
        name: "Expires",
        render: (one) => {
          const left = one.expires_ms - node.time_ms;
          return [time(one.expires_ms), " ", left < EXPIRES_SOON_MS && badge(left > 0 ? `in ${duration(left)}` : "expired", left > 0 ? "warn" : "bad")];
        },
      },
    ],
  }).element;
}
