// A small chat in a room, to try it: messages are events of the type `message` with {user, text}.
import { post } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, setText, show } from "../../dom.js";
import { button, emptyState, notice } from "../../elements.js";
import { EventFeed } from "../../event_feed.js";
import { clock } from "../../format.js";
import { session } from "../../session.js";
import { preview } from "./events.js";

const FIRST = 50;
const KEPT_MAX = 200;
const TEXT_MAX = 4_000;
const NAME_MAX = 60;
const STORED_NAME = "kwire.chat.name";
// The list follows new messages while it is at most this far from its end.
const NEAR_END_PX = 60;

export function chatTab(element, room, view) {
  const mayWrite = room.allows("WRITE");
  const stored = localStorage.getItem(STORED_NAME) ?? ownName();
  const name = h("input", { maxlength: NAME_MAX, autocomplete: "off", spellcheck: "false", "aria-label": "Your name", value: stored });
  const text = h("textarea", { rows: 1, maxlength: TEXT_MAX, placeholder: "Write a message", "aria-label": "Message" });
  const send = button("Send", null, { kind: "primary", icon: "send", type: "submit" });
  const list = h("div", { class: "chat-list", role: "log", "aria-label": "Messages", tabindex: "0" });
  const state = h("span", { class: "badge", role: "status" });
  const problem = h("div", {});
  const hint = commandHint("");
  const message = () => ({ user: name.value.trim() || "anonymous", text: text.value.trim() });
  const drawHint = () => hint.set(line("kwire", "room", "publish", room.name, JSON.stringify({ ...message(), text: message().text || "TEXT" })));

  const feed = new EventFeed({
    path: `${room.path}/subscribe`,
    start: { from_offset: -FIRST },
    placeOf: (event) => event.offset,
    resumeAt: (offset) => ({ from_offset: offset }),
    keptMax: KEPT_MAX,
    signal: view.signal,
    onChange: draw,
  });

  function draw() {
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PX;
    const shown = feed.events.slice(-KEPT_MAX);
    const own = name.value.trim();
    show(list, shown.length ? shown.map((event, index) => bubble(event, shown[index - 1], own)) : nothing());
    if (isAtEnd) list.scrollTop = list.scrollHeight;
    setText(state, feed.state === "live" ? "Live" : feed.state === "ended" ? "Ended" : "Connecting");
    state.className = `badge ${feed.state === "live" ? "good" : feed.state === "ended" ? "bad" : "warn"}`;
    if (feed.error) show(problem, notice(feed.error.message, "bad"));
  }

  const form = h(
    "form",
    { class: "chat-form" },
    h("label", { class: "chat-name" }, h("span", {}, "Name"), name),
    text,
    send,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return text.focus();
    send.disabled = true;
    show(problem);
    try {
      await post(`${room.path}/events`, { event_type: "message", data: message() });
      text.value = "";
      list.scrollTop = list.scrollHeight;
    } catch (error) {
      if (!error.code) throw error;
      show(problem, notice(error.message, "bad"));
    } finally {
      send.disabled = false;
      drawHint();
      text.focus();
    }
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("input", drawHint);
  name.addEventListener("change", () => {
    localStorage.setItem(STORED_NAME, name.value.trim());
    draw();
  });
  show(
    element,
    h(
      "section",
      { class: "card chat", "aria-label": "Chat" },
      h("div", { class: "card-head" }, h("h2", {}, "Chat"), h("span", { class: "muted" }, "Events of the type message"), h("span", { class: "actions" }, state)),
      list,
      mayWrite && form,
    ),
    problem,
    mayWrite && hint.element,
  );
  drawHint();
  draw();
}

const nothing = () => emptyState({ icon: "messages", title: "No messages yet", text: "Open this page in a second window, and say hello." });

const ownName = () => (session.principal ?? "").replace(/^User:/, "").replace(/^ANONYMOUS$/, "") || "me";

// A message, or one line for an event of another type. Messages of one user that follow each other have one name.
function bubble(event, before, own) {
  const { user, text } = messageOf(event);
  const at = h("time", { datetime: event.timestamp }, clock(Date.parse(event.timestamp)));
  if (text === undefined) return h("p", { class: "chat-other" }, h("b", {}, event.type), " ", h("code", {}, preview(event.data)), at);
  const isOwn = user === own;
  const isSame = before && messageOf(before).text !== undefined && messageOf(before).user === user;
  return h(
    "div",
    { class: `chat-message${isOwn ? " own" : ""}${isSame ? " same" : ""}` },
    !isSame && h("span", { class: "chat-user" }, isOwn ? `${user} (you)` : user),
    h("div", { class: "chat-bubble" }, h("span", {}, text), at),
  );
}

function messageOf({ type, data }) {
  const isMessage = type === "message" && data !== null && typeof data === "object" && typeof data.text === "string";
  return isMessage ? { user: typeof data.user === "string" ? data.user : "unknown", text: data.text } : {};
}
