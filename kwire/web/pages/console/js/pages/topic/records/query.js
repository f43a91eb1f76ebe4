// The form of a browse: where it starts, which partitions, how many records, and the filters that run on the server.
import { query } from "../../../api.js";
import { line } from "../../../command.js";
import { h, show } from "../../../dom.js";
import { field } from "../../../form.js";
import { count } from "../../../format.js";
import { setQuery } from "../../../router.js";
import { curl, kcat } from "../commands.js";

const STARTS = [["newest", "newest first"], ["oldest", "oldest first"], ["offset", "an offset"], ["time", "a point in time"]];
const LIMITS = [50, 200, 1_000, 5_000];
const FILTERS = ["key", "value", "header", "header_text", "path", "path_text"];

// recordQuery({topic, view, onChange}) -> {element, search({live, next}), commands(isLive), isolation(), isValid(), setError(message), save(more)}
export function recordQuery({ topic, view, onChange }) {
  const given = view.query;
  const fields = {
    from: field({ name: "from", label: "Start", type: "select", options: STARTS, value: given.from ?? "newest" }),
    offset: field({ name: "offset", label: "Offset", type: "number", min: 0, value: given.offset ?? 0, required: true }),
    time: field({ name: "time", label: "Time", type: "datetime-local", step: 1, value: given.time ?? localTime(Date.now() - 3_600_000), required: true }),
    partition: field({
      name: "partition",
      label: "Partitions",
      placeholder: `all ${topic.partitionCount}`,
      value: given.partition ?? "",
      check: partitionProblem,
    }),
    limit: field({
      name: "limit",
      label: "Limit",
      type: "select",
      options: LIMITS.map((one) => [one, one.toLocaleString("en-US")]),
      value: given.limit ?? LIMITS[0],
    }),
    isolation: field({
      name: "isolation",
      label: "Transactions",
      type: "select",
      options: [["", "committed only"], ["read_uncommitted", "open and aborted too"]],
      value: given.isolation ?? "",
    }),
    key: field({ name: "key", label: "Key contains", value: given.key ?? "", maxlength: 1000 }),
    value: field({ name: "value", label: "Value contains", value: given.value ?? "", maxlength: 1000 }),
    header: field({ name: "header", label: "Header", placeholder: "name", value: given.header ?? "", maxlength: 256 }),
    header_text: field({ name: "header_text", label: "Header contains", placeholder: "anything", value: given.header_text ?? "", maxlength: 1000 }),
    path: field({ name: "path", label: "JSON path", placeholder: "$.order.lines[0].sku", value: given.path ?? "", maxlength: 500 }),
    path_test: field({
      name: "path_test",
      label: "Test",
      type: "select",
      options: [["equals", "equals"], ["contains", "contains"]],
      value: given.path_test ?? "equals",
    }),
    path_text: field({ name: "path_text", label: "Text or number", placeholder: "exists", value: given.path_text ?? "", maxlength: 1000 }),
  };
  const read = (name) => fields[name].read();
  const chosen = () => FILTERS.filter((one) => read(one)).length > 0;
  const startPlace = h("div", { class: "field" });
  const about = h("span", { class: "muted" });
  const filters = h(
    "details",
    { class: "filters", open: chosen() },
    h("summary", {}, "Filters", about),
    h("div", { class: "fields compact" }, ["key", "value", "header", "header_text", "path", "path_test", "path_text"].map((one) => fields[one].element)),
  );
  const element = h(
    "div",
    { class: "form" },
    h("div", { class: "fields compact" }, fields.from.element, startPlace, fields.partition.element, fields.limit.element, fields.isolation.element),
    filters,
  );

  const draw = () => {
    const start = read("from");
    startPlace.hidden = !(start in fields);
    show(startPlace, start in fields && fields[start].element);
    const used = [read("key"), read("value"), read("header"), read("path")].filter(Boolean).length;
    about.textContent = used ? count(used, "filter") : "by key, value, header or a JSON path; they run on the server";
  };
  element.addEventListener("input", () => {
    draw();
    onChange();
  });
  draw();

  const from = () => ({ offset: () => String(read("offset") ?? 0), time: () => `${new Date(read("time")).getTime()}ms` })[read("from")]?.() ?? read("from");
  const partitions = () => read("partition").split(/[\s,]+/).filter(Boolean);

  // The query string of GET /topics/{topic}/records. `more` are further parameters.
  function search(more) {
    const made = query({
      from: from(),
      partition: partitions().join(","),
      limit: read("limit"),
      isolation: read("isolation"),
      key: read("key"),
      value: read("value"),
      path: read("path"),
      ...(read("path") && { [read("path_test")]: read("path_text") }),
      ...more,
    });
    // Without a text, the filter of a header passes every record that has the header.
    return read("header") ? `${made}&${new URLSearchParams({ [`header.${read("header")}`]: read("header_text") })}` : made;
  }

  function commands(isLive) {
    const made = { curl: curl(`/topics/${encodeURIComponent(topic.name)}/records${search({ live: isLive || "" })}`, "--no-buffer") };
    // kwire and kcat have no filters.
    if (["key", "value", "header", "path"].some(read)) return made;
    const start = read("from");
    const limit = String(read("limit"));
    const chosen = partitions();
    const first = { newest: ["--tail", limit], oldest: ["--from", "earliest"], offset: ["--from", from()], time: ["--from", isoTime(read("time"))] }[start];
    const last = isLive ? [] : ["--until", "end", ...(start === "newest" ? [] : ["--count", limit])];
    const kwire = line(
      "kwire",
      "topic",
      "consume",
      topic.name,
      first,
      chosen.flatMap((one) => ["--partition", one]),
      last,
      !read("isolation") && "--read-committed",
    );
    // kcat reads one partition or all.
    if (chosen.length > 1) return { kwire, ...made };
    const at = { newest: `-${limit}`, oldest: "beginning", offset: from(), time: `s@${from().replace("ms", "")}` }[start];
    return { kwire, kcat: kcat(topic, "-C", "-o", at, chosen.length > 0 && ["-p", chosen[0]], ...(isLive ? [] : ["-c", limit, "-e"])), ...made };
  }

  return {
    element,
    search,
    commands,
    isolation: () => read("isolation"),
    isValid: () => Object.entries(fields).every(([name, one]) => (["offset", "time"].includes(name) && read("from") !== name) || one.isValid()),
    // Shows an error of the server at the field that it is about. Returns whether there is one.
    setError(message) {
      const name = ["path", "partition", "from"].find((one) => message.startsWith(one)) ?? (message.startsWith("equals") ? "path" : null);
      if (name === "path") filters.open = true;
      fields[name]?.setError(message);
      return Boolean(name);
    },
    // Keeps the form in the address, so that a browse can be linked.
    save: (more) => setQuery({ ...Object.fromEntries(Object.keys(fields).map((name) => [name, isDefault(name) ? "" : read(name)])), ...more }),
  };

  function isDefault(name) {
    if (["offset", "time"].includes(name)) return read("from") !== name;
    return String(read(name)) === String({ from: "newest", limit: LIMITS[0], path_test: "equals" }[name] ?? "");
  }
}

const partitionProblem = (text) => (/^[\d\s,]*$/.test(text) ? "" : "Numbers, separated by commas: 0, 2");
const isoTime = (value) => (value ? new Date(value).toISOString().replace(".000", "") : "TIME");
// The value of a field for a local time.
const localTime = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
