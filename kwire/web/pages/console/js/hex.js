// Bytes as hexadecimal numbers and characters: hexView(bytes).
import { h } from "./dom.js";
import { number } from "./format.js";

const PER_LINE = 16;
const LINES_PER_PORTION = 64;

export function hexView(bytes, { label = "Bytes" } = {}) {
  const text = h("pre", { class: "hex", tabindex: "0", "aria-label": label });
  const element = h("div", { class: "code" }, text);
  let line = 0;
  const lineCount = Math.ceil(bytes.length / PER_LINE);
  const more = h("button", { type: "button", class: "quiet" });
  const draw = () => {
    const end = Math.min(lineCount, line + LINES_PER_PORTION);
    const lines = [];
    for (; line < end; line += 1) lines.push(lineOf(bytes, line));
    text.append(`${text.textContent ? "\n" : ""}${lines.join("\n")}`);
    more.textContent = `Show more: ${number(bytes.length - line * PER_LINE)} bytes are left`;
    if (line >= lineCount) more.remove();
  };
  more.addEventListener("click", draw);
  element.append(more);
  draw();
  return element;
}

function lineOf(bytes, line) {
  const some = bytes.subarray(line * PER_LINE, (line + 1) * PER_LINE);
  const codes = Array.from(some, (one) => one.toString(16).padStart(2, "0"));
  const hex = `${codes.slice(0, 8).join(" ")}  ${codes.slice(8).join(" ")}`.padEnd(PER_LINE * 3);
  const characters = Array.from(some, (one) => (one >= 0x20 && one < 0x7f ? String.fromCharCode(one) : "·")).join("");
  return `${(line * PER_LINE).toString(16).padStart(8, "0")}  ${hex}  ${characters}`;
}

// The bytes of base64 text.
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}
