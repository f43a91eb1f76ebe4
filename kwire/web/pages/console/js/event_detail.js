// One event beside the list: facts, its data as a tree or as text, its metadata, and the commands that read it.
import { codeBlock, commandHint, copyButton } from "./command.js";
import { openDialog } from "./dialog.js";
import { h, show } from "./dom.js";
import { facts, iconButton } from "./elements.js";
import { jsonText } from "./json.js";
import { jsonTree } from "./json_tree.js";

let lastView = "Tree";

// openEvent({event, events, describe}). describe(event) -> {title, facts: [[name, value]], data, metadata, commands,
// actions}. The arrow keys go to the events above and below in `events`. `onClose` is called when the dialog is closed.
export function openEvent({ event, events = [event], describe, onShow, onClose }) {
  let index = events.indexOf(event);
  const title = h("span", {});
  const body = h("div", { class: "stack" });
  const before = iconButton("Event above", "up", () => step(-1));
  const after = iconButton("Event below", "down", () => step(1));
  const draw = (one) => {
    const described = describe(one, () => dialog.close());
    title.textContent = described.title;
    before.disabled = index <= 0;
    after.disabled = index < 0 || index >= events.length - 1;
    show(body, content(described));
    onShow?.(one);
  };
  const step = (distance) => {
    const next = events[index + distance];
    if (!next) return;
    index += distance;
    draw(next);
  };
  const dialog = openDialog({ title, side: true, tools: [before, after], body, onClose });
  draw(event);
  dialog.element.addEventListener("keydown", (pressed) => {
    const distance = { ArrowUp: -1, ArrowDown: 1, k: -1, j: 1 }[pressed.key];
    if (!distance || pressed.target.closest("pre, input, textarea, summary")) return;
    pressed.preventDefault();
    step(distance);
  });
}

function content({ facts: entries, data, dataName, metadata = {}, commands, actions = [] }) {
  const text = jsonText(data, 2);
  const views = {
    Tree: () => h("div", { class: "code json-place" }, jsonTree(data, { label: `${dataName} as a tree` })),
    Text: () => codeBlock(text, { label: `${dataName} as text` }),
  };
  const place = h("div", {});
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "View" });
  const choose = (chosen) => {
    lastView = chosen;
    show(choice, Object.keys(views).map((one) => h("button", { type: "button", "aria-pressed": String(one === chosen), onclick: () => choose(one) }, one)));
    show(place, views[chosen]());
  };
  choose(lastView);
  const names = Object.entries(metadata);
  return [
    facts(entries),
    actions.some(Boolean) && h("div", { class: "row" }, actions),
    h("section", { class: "stack part" }, h("div", { class: "row part-head" }, h("h3", {}, dataName), choice, copyButton(text, "Copy the JSON")), place),
    names.length > 0 && h(
      "section",
      { class: "stack part" },
      h("h3", {}, "Metadata"),
      h("dl", { class: "headers" }, names.map(([name, value]) => h("div", {}, h("dt", {}, h("code", {}, name)), h("dd", {}, h("code", {}, value))))),
    ),
    commandHint(commands).element,
  ];
}
