// One room: live events, a chat to try it, the history, the subscribers; publish, retention, delete.
import { get, kafka, put, remove, throwFirst } from "../api.js";
import { line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { button, keyFigure, keyFigures, notice, pageHeader } from "../elements.js";
import { formDialog } from "../form.js";
import { NONE, ago, bytes, count, number, short, time } from "../format.js";
import { allows } from "../rights.js";
import { go, url } from "../router.js";
import { tabs } from "../tabs.js";
import { toast } from "../toast.js";
import { chatTab } from "./room/chat.js";
import { historyTab } from "./room/history.js";
import { liveTab } from "./room/live.js";
import { publishEvent } from "./room/publish.js";
import { retentionCommand, retentionFields, retentionOf, retentionText } from "./room/retention.js";
import { subscribersTab } from "./room/subscribers.js";

const REFRESH_MS = 2_000;
// `needs` is an operation on the topic of the room without which a tab is not offered.
const TABS = [
  { id: "", name: "Live", render: liveTab, needs: "READ" },
  { id: "chat", name: "Chat", render: chatTab, needs: "READ" },
  { id: "history", name: "History", render: historyTab, needs: "READ" },
  { id: "subscribers", name: "Subscribers", render: subscribersTab },
];

export const title = ({ room }) => room;

export async function render(element, view) {
  const name = view.params.room;
  const path = `/rooms/${encodeURIComponent(name)}`;
  const load = () => get(path, { signal: view.signal });
  let described = await load();
  const bits = await operationsOf(described.topic, view.signal);
  const room = { name, path, allows: (operation) => allows(bits, operation) };
  const figures = {
    events: keyFigure({ name: "Events" }),
    rate: keyFigure({ name: "Rate" }),
    subscribers: keyFigure({ name: "Subscribers", href: url("/rooms", name, "subscribers") }),
    last: keyFigure({ name: "Last event" }),
    size: keyFigure({ name: "Size" }),
  };
  const problem = h("div", {});
  let before = null;
  const draw = () => {
    const now = { offset: described.newest_offset, at: performance.now() };
    const rate = before && now.at > before.at ? Math.max(0, (now.offset - before.offset) / ((now.at - before.at) / 1000)) : null;
    before = now;
    const last = described.last_event_at === null ? null : Date.parse(described.last_event_at);
    const range = `offsets ${number(described.oldest_offset)} to ${number(described.newest_offset)}`;
    figures.events.set(number(described.event_count), described.event_count ? range : "none stored");
    figures.rate.set(rate === null ? NONE : `${short(rate)}/s`, `over ${REFRESH_MS / 1000} seconds`);
    figures.subscribers.set(number(described.subscribers), "connected now", described.subscribers ? "good" : "");
    figures.last.set(ago(last), last === null ? "no event yet" : time(last));
    figures.size.set(bytes(described.size_bytes), `keeps ${retentionText(described.retention)}`);
  };
  show(
    element,
    pageHeader({
      title: name,
      parents: [["Rooms", url("/rooms")]],
      about: described.topic === name ? null : `Topic ${described.topic}`,
      actions: [
        room.allows("WRITE") && button("Publish", () => publishEvent(room), { kind: "primary", icon: "send" }),
        described.is_room && room.allows("ALTER_CONFIGS") && button("Retention", () => changeRetention(room, described.retention, refresh), { icon: "settings" }),
        described.is_room && room.allows("DELETE") && button("Delete", () => deleteRoom(room, described), { kind: "danger-quiet", icon: "trash" }),
      ],
    }),
    h("div", { class: "stack" }, problem, keyFigures("Room", Object.values(figures)), tabs({
      label: `Room ${name}`,
      selected: view.params.tab,
      items: TABS.filter(({ needs }) => !needs || room.allows(needs)).map((tab) => ({
        id: tab.id,
        name: tab.name,
        href: url("/rooms", name, tab.id),
        render: (panel) => tab.render(panel, room, view),
      })),
    })),
  );
  async function refresh() {
    described = await load();
    draw();
  }
  draw();
  view.every(REFRESH_MS, async () => {
    try {
      await refresh();
      show(problem);
    } catch (error) {
      if (!error.status) throw error;
      show(problem, notice(error.message, "bad"));
    }
  });
}

async function operationsOf(topic, signal) {
  const body = { topics: [{ name: topic }], allow_auto_topic_creation: false, include_topic_authorized_operations: true };
  const metadata = await kafka("Metadata", body, { signal });
  return throwFirst(metadata).topics[0].topic_authorized_operations;
}

function changeRetention({ name, path }, retention, onDone) {
  formDialog({
    title: `Retention of ${name}`,
    about: "Events beyond these limits are deleted.",
    action: "Save",
    fields: retentionFields(retention),
    command: (values) => retentionCommand(name, values),
    run: async (values) => {
      await put(path, retentionOf(values));
      toast(`The retention of ${name} was changed.`);
      await onDone();
    },
  });
}

async function deleteRoom({ name, path }, { event_count: events, size_bytes: size, subscribers }) {
  const isDone = await confirmAction({
    title: `Delete room ${name}`,
    effect: `${count(events, "event")} with ${bytes(size)} are deleted, and ${count(subscribers, "subscription")} end. This cannot be undone.`,
    typeName: name,
    command: line("kwire", "room", "delete", name),
    action: "Delete room",
    done: `Room ${name} was deleted.`,
    run: () => remove(path),
  });
  if (isDone) go(url("/rooms"));
}
