// Produces records: one with a form, or several as JSON lines. The dialog shows where each record was stored.
import { ApiError, post } from "../../api.js";
import { openDialog } from "../../dialog.js";
import { h, show } from "../../dom.js";
import { badge } from "../../elements.js";
import { field, form, problemOf } from "../../form.js";
import { count, number } from "../../format.js";
import { jsonProblem } from "../../json.js";
import { go, url } from "../../router.js";
import { commandsOf, headersOf, recordOf, recordsOf } from "./produce/records.js";

const MEDIA_TYPE = "application/vnd.kafka.text.v2+json";
// The results of a request that are listed.
const RESULTS_SHOWN = 20;
const FORMATS = [["json", "JSON"], ["text", "text"], ["null", "null (deletes the key when the topic is compacted)"]];

export function produceRecords(topic) {
  let isProduced = false;
  const results = h("div", { class: "stack", role: "status" });
  const mode = field({ name: "mode", label: "Records", type: "select", options: [["one", "one record"], ["lines", "several, as JSON lines"]], value: "one" });
  const isOne = () => mode.read() === "one";
  const format = field({ name: "format", label: "Value", type: "select", options: FORMATS, value: "json" });
  const fields = {
    mode,
    key: field({ name: "key", label: "Key", placeholder: "no key", autofocus: true }),
    partition: field({ name: "partition", label: "Partition", type: "number", min: 0, max: topic.partitionCount - 1, placeholder: "chosen by the key" }),
    format,
    value: field({
      name: "value",
      label: "Content of the value",
      type: "textarea",
      rows: 7,
      wide: true,
      value: "{}",
      check: (text) => (isOne() && format.read() === "json" ? jsonProblem(text) : ""),
    }),
    headers: field({
      name: "headers",
      label: "Headers",
      type: "textarea",
      rows: 2,
      wide: true,
      hint: "One per line: name=value",
      check: (text) => (isOne() ? problemOf(() => headersOf(text)) : ""),
    }),
    lines: field({
      name: "lines",
      label: "JSON lines",
      type: "textarea",
      rows: 10,
      wide: true,
      value: '{"key": "a", "value": {"id": 1}}\n{"key": "b", "value": {"id": 2}, "headers": {"source": "console"}}',
      hint: "An object per line with value, and optionally key, headers, partition and timestamp.",
      check: (text) => (isOne() ? "" : problemOf(() => recordsOf(text))),
    }),
  };
  const draw = () => {
    for (const name of ["key", "partition", "format", "headers"]) fields[name].element.hidden = !isOne();
    fields.value.element.hidden = !isOne() || format.read() === "null";
    fields.lines.element.hidden = isOne();
  };
  const bodyOf = (values) => ({ records: values.mode === "one" ? [recordOf(values)] : recordsOf(values.lines) });
  const made = form({
    action: "Produce",
    fields: Object.values(fields),
    command: (values) => commandsOf(topic, values, () => bodyOf(values), MEDIA_TYPE),
    onCancel: () => dialog.close(),
    run: async (values) => {
      const body = bodyOf(values);
      const { offsets } = await post(
        `/topics/${encodeURIComponent(topic.name)}`,
        body,
        { headers: { "Content-Type": MEDIA_TYPE, Accept: "application/vnd.kafka.v2+json, application/json" } },
      );
      isProduced = true;
      show(results, resultList(topic, offsets, () => dialog.close()));
      const failed = offsets.filter((one) => one.error_code);
      if (failed.length === offsets.length) throw new ApiError(failed[0].error, { code: String(failed[0].error_code) });
    },
  });
  made.element.addEventListener("input", draw);
  draw();
  const dialog = openDialog({
    title: `Produce to ${topic.name}`,
    wide: true,
    body: h("div", { class: "stack" }, made.element, results),
    // The page shows what was produced.
    onClose: () => isProduced && go(location.pathname + location.search, { replace: true }),
  });
}

function resultList({ name }, offsets, close) {
  const stored = offsets.filter((one) => !one.error_code);
  const shown = offsets.slice(0, RESULTS_SHOWN).map(({ partition, offset, error }) => {
    if (error) return h("li", {}, badge("refused", "bad"), ` ${error}`);
    const address = `${url("/topics", name)}?from=offset&offset=${offset}&partition=${partition}`;
    return h("li", {}, badge("stored", "good"), ` partition ${partition}, offset ${number(offset)} `, h("a", { href: address, onclick: close }, "Show"));
  });
  return [
    h("h3", {}, `${count(stored.length, "record")} stored`),
    h("ul", { class: "results" }, shown),
    offsets.length > RESULTS_SHOWN && h("p", { class: "muted" }, `and ${number(offsets.length - RESULTS_SHOWN)} more`),
  ];
}
