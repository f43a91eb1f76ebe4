// The segments of a partition on disk.
import { get, query } from "../../api.js";
import { commandHint } from "../../command.js";
import { h, setText, show } from "../../dom.js";
import { badge, emptyState, keyFigure, keyFigures } from "../../elements.js";
import { bytes, count, number, time } from "../../format.js";
import { setQuery } from "../../router.js";
import { dataTable } from "../../table.js";
import { curl } from "./commands.js";

const PAGE = 1_000;
const SEGMENTS_MAX = 20_000;

export async function segmentsTab(element, topic, view) {
  const chosen = Number(view.query.partition ?? 0);
  let partition = chosen < topic.partitionCount ? chosen : 0;
  const path = () => `/topics/${encodeURIComponent(topic.name)}/partitions/${partition}/segments`;
  const choice = h(
    "select",
    { "aria-label": "Partition" },
    Array.from({ length: topic.partitionCount }, (_, one) => h("option", { value: one, selected: one === partition }, `Partition ${one}`)),
  );
  const figures = {
    count: keyFigure({ name: "Segments" }),
    size: keyFigure({ name: "Size" }),
    index: keyFigure({ name: "Indexes" }),
    oldest: keyFigure({ name: "Oldest record" }),
  };
  const hint = commandHint({ curl: curl(path()) });
  const note = h("span", { class: "muted", hidden: true });
  const table = dataTable({
    label: "Segments",
    noun: "segment",
    view,
    columns: [
      { name: "Base offset", value: (one) => one.base_offset, text: number, kind: "number" },
      { name: "Next offset", value: (one) => one.next_offset, text: number, kind: "number", hideBelow: 640 },
      { name: "Size", value: (one) => one.size_bytes, text: bytes, kind: "number" },
      { name: "Index", value: (one) => one.index_bytes + one.transaction_index_bytes, text: bytes, kind: "number", hideBelow: 900 },
      { name: "First record", value: (one) => one.first_timestamp_ms, text: (ms) => time(ms), hideBelow: 900 },
      { name: "Newest record", value: (one) => one.max_timestamp_ms, text: (ms) => time(ms), hideBelow: 640 },
      { name: "State", value: (one) => one.state, render: stateOf },
    ],
    key: (one) => one.base_offset,
    sort: "-Base offset",
    tools: [note, choice],
    empty: emptyState({ icon: "storage", title: "No segments" }),
  });
  const load = async () => {
    try {
      const found = await allSegments(path(), view.signal);
      const sum = (value) => found.segments.reduce((total, one) => total + value(one), 0);
      figures.count.set(number(found.count));
      figures.size.set(bytes(sum((one) => one.size_bytes)));
      figures.index.set(bytes(sum((one) => one.index_bytes + one.transaction_index_bytes)));
      figures.oldest.set(time(found.segments.find((one) => one.first_timestamp_ms !== null)?.first_timestamp_ms));
      note.hidden = found.count === found.segments.length;
      setText(note, `the first ${number(found.segments.length)}`);
      table.setRows(found.segments);
    } catch (error) {
      table.setFailure(error, load);
      if (!error.status) throw error;
    }
  };
  choice.addEventListener("change", () => {
    partition = Number(choice.value);
    setQuery({ partition: partition || "" });
    hint.set({ curl: curl(path()) });
    load();
  });
  show(element, keyFigures("Segments", Object.values(figures)), table.element, hint.element);
  await load();
}

async function allSegments(path, signal) {
  const segments = [];
  let page;
  do {
    page = await get(`${path}${query({ limit: PAGE, after: page?.next })}`, { signal });
    segments.push(...page.segments);
  } while (page.next !== null && segments.length < SEGMENTS_MAX);
  return { segments, count: page.segment_count };
}


function stateOf({ state, quarantined }) {
  return h(
    "span",
    { class: "row" },
    badge(state, state === "active" ? "good" : ""),
    quarantined.length > 0 && badge(`${count(quarantined.length, "damaged range")}`, "bad"),
  );
}
