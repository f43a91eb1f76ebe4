// A chat: the last messages of a room, then live. What was shown, and the position after it, is kept while the tab lives.
import { h, show } from "../js/dom.js";
import { emptyState, notice } from "../js/elements.js";
import { clock } from "../js/format.js";
import { icon } from "../js/icons.js";
import { avatar, client, join, roomState, showError } from "./room.js";

const SHOWN_MAX = 500;
// Messages of one person within this time stand together.
const TOGETHER_MS = 5 * 60_000;
const TEXT_CHARACTERS_MAX = 2_000;
// Within this distance of its end, the list scrolls to new messages by itself.
const NEAR_END_PX = 80;

export async function render(element, query) {
  const { user, room } = await join(element, query, {
    title: "Chat",
    about: "Messages are events of a room. Open this page twice to talk to yourself.",
    room: "chat-room-1",
    action: "Join the chat",
  });
  const state = roomState();
  const list = h("ol", { class: "messages", role: "log", "aria-label": "Messages", tabindex: "0" });
  const empty = emptyState({ icon: "messages", title: "No messages yet", text: "Say hello." });
  const error = h("div", { class: "chat-error" });
  const input = h("input", { "aria-label": "Message", placeholder: `Message to ${room}`, autocomplete: "off", maxlength: TEXT_CHARACTERS_MAX, required: true });
  const compose = h("form", { class: "compose" }, input, h("button", { class: "primary", type: "submit" }, icon("send"), "Send"));
  compose.addEventListener("submit", (event) => {
    event.preventDefault();
    send(room, user, input, error);
  });
  show(
    element,
    h("div", { class: "chat card" }, h("div", { class: "card-head" }, h("h1", {}, room), state.element, h("span", { class: "actions" }, avatar(user), h("b", {}, user))), h("div", { class: "messages-place" }, empty, list), error, compose),
  );
  input.focus();
  const shown = new Messages(list, user, () => empty.remove());
  await follow(room, shown, state, error);
}

async function send(room, user, input, error) {
  const text = input.value.trim();
  if (!text) return;
  input.value = "";
  try {
    await client.stream.publish(room, "message", { user, text, timestamp: new Date().toISOString() });
    showError(error, null);
  } catch (failed) {
    // If it is not known whether the message was stored, the user decides whether to send it again.
    input.value = text;
    showError(error, failed);
  }
}

async function follow(room, shown, state, error) {
  const place = `kwire-chat:${room}`;
  const kept = JSON.parse(sessionStorage.getItem(place) ?? '{"items": []}');
  for (const item of kept.items) shown.add(item);
  try {
    // Somebody new gets the last 50 messages; a reload continues after the last message that was shown.
    const start = kept.position ? { resume: kept.position } : { fromOffset: -50, replay: true };
    const subscription = await client.stream.subscribe(room, start);
    state.setLive();
    for await (const item of subscription) {
      if (item.kind !== "event" && item.kind !== "gap") continue;
      shown.add(item);
      kept.items = [...kept.items, item].slice(-SHOWN_MAX);
      kept.position = subscription.position;
      sessionStorage.setItem(place, JSON.stringify(kept));
    }
  } catch (failed) {
    state.setError();
    showError(error, failed);
  }
}

class Messages {
  constructor(list, user, onFirst) {
    this._list = list;
    this._user = user;
    this._onFirst = onFirst;
    this._last = null;
  }

  add(item) {
    this._onFirst();
    const list = this._list;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PX;
    list.append(item.kind === "gap" ? h("li", { class: "message-gap" }, notice(`Messages are missing here (${item.reason}).`, "warn")) : this._message(item));
    while (list.children.length > SHOWN_MAX) list.firstChild.remove();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  _message({ offset, data, timestamp }) {
    const user = String(data?.user ?? "?");
    const at = Date.parse(timestamp);
    const isOwn = user === this._user;
    const isNext = this._last?.user === user && at - this._last.at < TOGETHER_MS;
    this._last = { user, at };
    return h(
      "li",
      { class: `message${isOwn ? " own" : ""}${isNext ? " next" : ""}`, "data-offset": offset },
      !isOwn && avatar(user),
      h("div", { class: "message-body" }, h("div", { class: "message-head" }, h("b", {}, isOwn ? "You" : user), h("time", { datetime: timestamp }, clock(at))), h("p", { class: "bubble" }, String(data?.text ?? JSON.stringify(data)))),
    );
  }
}
