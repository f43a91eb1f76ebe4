// Commands that do the same as the console, and code that can be copied.
import { h, newId, show } from "./dom.js";
import { icon } from "./icons.js";

const COPIED_MS = 1500;

// A word of a shell command, quoted if necessary: word("a b") -> 'a b'
export function word(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? String(text) : `'${String(text).replaceAll("'", "'\\''")}'`;
}

// line("kwire", "topic", "create", name): the words of a command, quoted. Missing words are left out.
export function line(...words) {
  return words.flat().filter((one) => one !== null && one !== undefined && one !== false && one !== "").map(word).join(" ");
}

export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages of plain http have no clipboard API.
  const area = h("textarea", { class: "hidden", "aria-hidden": "true", value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function copyButton(textOf, name = "Copy") {
  const button = h("button", { class: "quiet icon-button copy", type: "button", "aria-label": name, title: name }, icon("copy", 16));
  button.addEventListener("click", async () => {
    await copyText(typeof textOf === "function" ? textOf() : textOf);
    show(button, icon("check", 16));
    setTimeout(() => show(button, icon("copy", 16)), COPIED_MS);
  });
  return button;
}

// codeBlock(text): text in a fixed-width font with a button that copies it.
export function codeBlock(text, { label = "Code" } = {}) {
  return h("div", { class: "code" }, h("pre", { tabindex: "0", "aria-label": label }, text), copyButton(text));
}

// commandHint({kwire: "kwire topic list", curl: "curl …"}) -> {element, set(commands)}. One line: the equivalent command.
// With several commands, the reader chooses one.
export function commandHint(commands, { label = "Equivalent command" } = {}) {
  let current = typeof commands === "string" ? { kwire: commands } : commands;
  let chosen = Object.keys(current)[0];
  const text = h("pre", { tabindex: "0", "aria-label": label });
  const choice = h("div", { class: "command-choice", role: "group", "aria-label": "Tool" });
  const draw = () => {
    const names = Object.keys(current);
    if (!(chosen in current)) chosen = names[0];
    text.textContent = current[chosen];
    show(choice, names.length > 1 && names.map((name) => h("button", { type: "button", class: "quiet", "aria-pressed": String(name === chosen), onclick: () => { chosen = name; draw(); } }, name)));
  };
  draw();
  const id = newId("command");
  const element = h("div", { class: "command", role: "group", "aria-labelledby": id }, h("div", { class: "command-head" }, icon("terminal", 16), h("span", { id }, label), choice, copyButton(() => current[chosen], "Copy the command")), text);
  return {
    element,
    set(newCommands) {
      current = typeof newCommands === "string" ? { kwire: newCommands } : newCommands;
      draw();
    },
  };
}
