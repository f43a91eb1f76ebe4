// The list of rooms, with their subscribers, counts and rates.
import { get, put, query } from "../api.js";
import { commandHint, line } from "../command.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, notice, pageHeader } from "../elements.js";
import { formDialog } from "../form.js";
import { ago, number, short, time } from "../format.js";
import { addKey } from "../keys.js";
import { mayCreateTopics } from "../rights.js";
import { go, url } from "../router.js";
import { TIME_WIDTH, dataTable } from "../table.js";
import { toast } from "../toast.js";
import { retentionCommand, retentionFields, retentionOf, roomNameField } from "./room/retention.js";

const REFRESH_MS = 3_000;
const PAGE = 1_000;
const ROOMS_MAX = 5_000;
// The rooms that have not been used for a while and are asked for their counts, once.
const DETAILS_MAX = 50;

export const title = "Rooms";

export async function render(element, view) {
  const details = new Map();
  const rates = new Rates();
  const more = h("div", {});
  const create = (kind) => mayCreateTopics() && button("Create room", createRoom, { kind, icon: "plus" });
  const table = dataTable({
    label: "Rooms",
    noun: "room",
    view,
    columns: [
      { name: "Room", value: (one) => one.room },
      { name: "Subscribers", value: (one) => one.subscribers, render: subscribers, kind: "number", width: "8rem" },
      { name: "Events", value: (one) => one.event_count, text: number, kind: "number", width: "8rem" },
      { name: "Rate", value: (one) => one.rate, text: (value) => `${short(value)}/s`, kind: "number", width: "7rem", hideBelow: 640 },
      { name: "Last event", value: (one) => one.last, text: ago, width: "11rem", hideBelow: 640 },
      { name: "Created", value: (one) => one.created, text: (ms) => time(ms), width: TIME_WIDTH, hideBelow: 1200 },
    ],
    key: (one) => one.room,
    href: (one) => url("/rooms", one.room),
    filter: (one) => one.room,
    sort: "Room",
    empty: emptyState({
      icon: "rooms",
      title: "No rooms yet",
      text: "A room is a stream of events that browsers and programs follow live. It appears with its first event or subscriber.",
      action: create(""),
    }),
  });

  const load = async () => {
    const { rooms, isCut } = await allRooms(view.signal);
    await addDetails(rooms, details, view.signal);
    show(more, isCut && notice(`Only the first ${number(ROOMS_MAX)} rooms are shown.`));
    table.setRows(rooms.map((one) => ({ ...one, rate: rates.of(one), last: msOf(one.last_event_at), created: msOf(one.created_at) })));
  };
  show(
    element,
    pageHeader({ title: "Rooms", about: "Events that browsers and programs publish and follow live, over HTTP and WebSocket.", actions: [create("primary")] }),
    h("div", { class: "stack" }, table.element, more, commandHint(line("kwire", "room", "list")).element),
  );
  if (mayCreateTopics()) addKey(view, "n", "Create a room", createRoom);
  view.every(REFRESH_MS, async () => {
    try {
      await load();
    } catch (error) {
      if (!error.status) throw error;
      table.setFailure(error, load);
    }
  });
}

const msOf = (text) => (text === null ? null : Date.parse(text));
const subscribers = (one) => (one.subscribers ? badge(number(one.subscribers), "good") : h("span", { class: "muted" }, "0"));

async function allRooms(signal) {
  const found = [];
  let after;
  do {
    const page = await get(`/rooms${query({ limit: PAGE, after })}`, { signal });
    found.push(...page.rooms);
    after = page.next;
  } while (after !== null && found.length < ROOMS_MAX);
  return { rooms: found, isCut: after !== null };
}

// A list opens no log, so rooms that have not been used for a while have no counts. Some are asked for them.
async function addDetails(rooms, details, signal) {
  const unknown = rooms.filter((one) => one.event_count === null);
  const missing = unknown.filter((one) => !details.has(one.room)).slice(0, Math.max(0, DETAILS_MAX - details.size));
  await Promise.all(missing.map(async ({ room }) => {
    // A room that was deleted meanwhile has none.
    details.set(room, await get(`/rooms/${encodeURIComponent(room)}`, { signal }).catch((error) => { if (error.status !== 404) throw error; return {}; }));
  }));
  for (const one of unknown) {
    const { event_count = null, newest_offset = null, last_event_at = null } = details.get(one.room) ?? {};
    Object.assign(one, { event_count, newest_offset, last_event_at });
  }
}

// Events per second of each room, between two answers of the server.
class Rates {
  constructor() {
    this._before = new Map();
  }

  of({ room, newest_offset: newest }) {
    if (newest === null) return null;
    const now = performance.now();
    const before = this._before.get(room);
    this._before.set(room, { newest, at: now });
    return before && now > before.at ? Math.max(0, (newest - before.newest) / ((now - before.at) / 1000)) : null;
  }
}

function createRoom() {
  formDialog({
    title: "Create room",
    about: "A room is also created by its first event or subscriber. Create it here if it should keep its events for another time.",
    action: "Create room",
    fields: [roomNameField(), ...retentionFields({})],
    command: (values) => retentionCommand(values.name || "ROOM", values),
    run: async (values) => {
      await put(`/rooms/${encodeURIComponent(values.name)}`, retentionOf(values));
      toast(`Room ${values.name} was created.`);
      go(url("/rooms", values.name));
    },
    fieldOf: (error) => (["InvalidName", "TopicHasPartitions"].includes(error.code) ? "name" : null),
  });
}
