// Short messages in the corner: toast("Topic orders was created", {kind: "good"}).
import { ApiError, isAborted } from "./api.js";
import { h } from "./dom.js";
import { sentence } from "./format.js";
import { icon } from "./icons.js";

const SHOWN_MS = 6000;
const SHOWN_MAX = 4;
let list = null;

// Kinds: good, bad, info. A message of the kind bad stays until it is closed.
export function toast(text, { kind = "good", href, link } = {}) {
  if (list === null) {
    list = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(list);
  }
  const close = () => one.remove();
  const one = h(
    "div",
    { class: `toast ${kind}` },
    icon(kind === "good" ? "check" : kind === "bad" ? "alert" : "info"),
    h("span", {}, sentence(text), href && [" ", h("a", { href }, link ?? "Show")]),
    h("button", { class: "quiet icon-button", type: "button", "aria-label": "Close the message", onclick: close }, icon("close", 16)),
  );
  list.append(one);
  while (list.children.length > SHOWN_MAX) list.firstElementChild.remove();
  if (kind !== "bad") setTimeout(close, SHOWN_MS);
}

// The same function with errors of the server as a message: button("Send again", reporting(resend)).
export function reporting(run) {
  return async (...given) => {
    try {
      await run(...given);
    } catch (error) {
      if (error instanceof ApiError) toast(error.message, { kind: "bad" });
      else if (!isAborted(error)) throw error;
    }
  };
}
