// What the examples share: the form in which people say who they are, the live state of a room, and people's marks.
import { KwireClient } from "/kwire.js";
import { h, show } from "../js/dom.js";
import { badge, notice } from "../js/elements.js";
import { field, form } from "../js/form.js";
import { session } from "../js/session.js";

export const client = new KwireClient();

const NAME_CHARACTERS_MAX = 40;
const COLOURS = 4;

// Returns who takes part in which room: from the address, or from a form. The address keeps it for the next load.
export function join(element, query, { title, about, room, action }) {
  const chosen = { user: query.get("user") ?? "", room: query.get("room") ?? room };
  if (chosen.user) return Promise.resolve(chosen);
  return new Promise((resolve) => {
    const name = session.kind === "anonymous" ? "" : session.principal.replace(/^User:/, "");
    const made = form({
      fields: [
        field({ name: "user", label: "Your name", value: name, maxlength: NAME_CHARACTERS_MAX, required: true, autofocus: true }),
        field({ name: "room", label: "Room", value: chosen.room, required: true, hint: "Users of the same room see each other." }),
      ],
      action,
      run: (values) => {
        history.replaceState(null, "", `?${new URLSearchParams(values)}`);
        resolve(values);
      },
    });
    show(element, h("div", { class: "join" }, h("div", { class: "card login" }, h("h1", {}, title), h("p", { class: "about" }, about), made.element)));
    made.element.querySelector("input").focus();
  });
}

// roomState() -> {element, setLive(), setError(error)}: a badge, and an error that ended the subscription.
export function roomState() {
  const element = h("span", { class: "room-state", role: "status" }, badge("Connecting"));
  return {
    element,
    setLive: () => show(element, badge("Live", "good")),
    setError: () => show(element, badge("Not connected", "bad")),
  };
}

// Shows an error of the server, or removes it.
export function showError(place, error) {
  show(place, error && notice(error.isUncertain ? "The connection was lost. It is not known whether this was stored." : error.message, "bad"));
}

// A round mark with the first letter of a name. A name has the same colour on every page.
export function avatar(name) {
  let sum = 0;
  for (const one of name) sum = (sum * 31 + one.codePointAt(0)) >>> 0;
  return h("span", { class: `avatar c${(sum % COLOURS) + 1}`, "aria-hidden": "true" }, [...name][0]?.toUpperCase() ?? "?");
}
