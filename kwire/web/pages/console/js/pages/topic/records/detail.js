// One record: facts, key, value as a tree, text or bytes, headers, and the commands that read it.
import { get, query } from "../../../api.js";
import { commandHint, copyButton, line } from "../../../command.js";
import { openDialog } from "../../../dialog.js";
import { h, show } from "../../../dom.js";
import { button, facts, iconButton, notice } from "../../../elements.js";
import { bytes, number, time } from "../../../format.js";
import { bytesOf, hexView } from "../../../hex.js";
import { parseExact } from "../../../json.js";
import { jsonTree } from "../../../json_tree.js";
import { curl, kcat } from "../commands.js";

// The characters of a text that are shown. The copy is complete.
const TEXT_SHOWN = 200_000;
let lastView = "JSON";

// Opens a record. `records` is the list in which the arrow keys go to the record before and after it.
export function openRecord(topic, record, { records = [record], isolation = "" } = {}) {
  let index = records.indexOf(record);
  const title = h("span", {});
  const body = h("div", { class: "stack" });
  const before = iconButton("Record above", "up", () => step(-1));
  const after = iconButton("Record below", "down", () => step(1));
  const draw = (one) => {
    title.textContent = `Partition ${one.partition}, offset ${number(one.offset)}`;
    before.disabled = index <= 0;
    after.disabled = index < 0 || index >= records.length - 1;
    show(body, content(topic, one, { isolation, onWhole: draw }));
  };
  const step = (distance) => {
    const next = records[index + distance];
    if (!next) return;
    index += distance;
    draw(next);
  };
  draw(record);
  const dialog = openDialog({ title, side: true, tools: [before, after], body });
  dialog.element.addEventListener("keydown", (event) => {
    const distance = { ArrowUp: -1, ArrowDown: 1, k: -1, j: 1 }[event.key];
    // In a text that can be scrolled, the arrow keys scroll.
    if (!distance || event.target.closest("pre, input, textarea, summary")) return;
    event.preventDefault();
    step(distance);
  });
}

function content(topic, record, { isolation, onWhole }) {
  const { name } = topic;
  const path = `/topics/${encodeURIComponent(name)}/partitions/${record.partition}/records/${record.offset}`;
  const error = h("div", {});
  const load = button("Load the whole record", async () => {
    try {
      onWhole({ ...(await get(`${path}${query({ encoding: "text", isolation })}`)), isWhole: true });
    } catch (failed) {
      show(error, notice(failed.message, "bad"));
    }
  }, { icon: "download" });
  const at = String(record.offset);
  return [
    facts([
      ["Time", time(record.timestamp, { milliseconds: true })],
      ["Time set by", record.timestamp_type === "append" ? "the server" : "the producer"],
      ["Partition", number(record.partition)],
      ["Offset", number(record.offset)],
      ["Key", record.key ? bytes(record.key.size_bytes) : "null"],
      ["Value", record.value ? bytes(record.value.size_bytes) : "null"],
      ["Headers", number(record.headers.length)],
      ["Size", bytes(record.size_bytes)],
    ]),
    record.truncated && h(
      "div",
      { class: "row" },
      notice(record.isWhole ? "Parts above 4 MiB are cut." : "Only the beginning is shown.", "warn"),
      !record.isWhole && load,
    ),
    error,
    section("Key", record.key),
    section("Value", record.value),
    record.headers.length > 0 && h("section", { class: "stack part" }, h("h3", {}, "Headers"), headerList(record.headers)),
    commandHint({
      kwire: line("kwire", "topic", "consume", name, "--partition", String(record.partition), "--from", at, "--count", "1", "-o", "json"),
      kcat: kcat(topic, "-C", "-p", String(record.partition), "-o", at, "-c", "1", "-e"),
      curl: curl(path),
    }).element,
  ];
}

function headerList(headers) {
  return h(
    "dl",
    { class: "headers" },
    headers.map(({ name, value }) => h(
      "div",
      {},
      h("dt", {}, h("code", {}, name)),
      h(
        "dd",
        {},
        value === null ? h("span", { class: "muted" }, "null") : h("code", {}, value.data),
        value?.truncated && h("span", { class: "muted" }, ` … ${bytes(value.size_bytes)}`),
      ),
    )),
  );
}

// A key or a value, with a choice of views.
function section(name, part) {
  if (part === null) return h("section", { class: "stack part" }, h("h3", {}, name), h("p", { class: "muted" }, "null"));
  const parsed = part.truncated || part.encoding === "base64" ? undefined : parse(part.data);
  const views = {};
  if (parsed !== undefined) views.JSON = () => h("div", { class: "code json-place" }, jsonTree(parsed, { label: `${name} as JSON` }));
  if (part.encoding !== "base64") views.Text = () => textView(part.data, name);
  views.Hex = () => hexView(part.encoding === "base64" ? bytesOf(part.data) : new TextEncoder().encode(part.data), { label: `${name} as bytes` });
  const place = h("div", {});
  const choice = h("div", { class: "segmented", role: "group", "aria-label": `View of the ${name.toLowerCase()}` });
  const choose = (chosen) => {
    show(
      choice,
      Object.keys(views).map((one) => h("button", { type: "button", "aria-pressed": String(one === chosen), onclick: () => choose((lastView = one)) }, one)),
    );
    show(place, views[chosen]());
  };
  choose(lastView in views ? lastView : Object.keys(views)[0]);
  return h(
    "section",
    { class: "stack part" },
    h("div", { class: "row part-head" }, h("h3", {}, name), choice, copyButton(part.data, `Copy the ${name.toLowerCase()}`)),
    place,
  );
}

function textView(text, name) {
  const label = `${name} as text`;
  const shown = h("div", { class: "code" }, h("pre", { tabindex: "0", "aria-label": label }, text.slice(0, TEXT_SHOWN)));
  if (text.length <= TEXT_SHOWN) return shown;
  return h("div", { class: "stack" }, shown, notice(`${number(text.length - TEXT_SHOWN)} more characters are not shown. The copy is complete.`));
}

// The JSON value of a text; undefined if the text is not a JSON object or array.
function parse(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}
