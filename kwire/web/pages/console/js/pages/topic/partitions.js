// The partitions of a topic: offsets, records and sizes; partitions can be added, and old records deleted.
import { get, kafka, throwFirst } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { button, keyFigure, keyFigures } from "../../elements.js";
import { field, formDialog } from "../../form.js";
import { bytes, count, number } from "../../format.js";
import { go, url } from "../../router.js";
import { dataTable } from "../../table.js";
import { toast } from "../../toast.js";
import { deleteRecords } from "./delete_records.js";

const PARTITIONS_MAX = 10_000;

export async function partitionsTab(element, topic, view) {
  const load = async () => (await get(`/topics/${encodeURIComponent(topic.name)}/stats`, { signal: view.signal })).partitions;
  let partitions = await load();
  const figures = { partitions: keyFigure({ name: "Partitions" }), records: keyFigure({ name: "Records" }), size: keyFigure({ name: "Size" }) };
  const mayDelete = topic.allows("DELETE") && topic.kind !== "internal";
  const mayAdd = topic.allows("ALTER") && topic.kind === "topic";
  const remove = (partition) => deleteRecords(topic, { partition, load, onDone: refresh });
  const table = dataTable({
    label: "Partitions",
    noun: "partition",
    view,
    columns: [
      { name: "Partition", value: (one) => one.partition_id, text: String },
      { name: "First offset", value: (one) => one.min_offset, text: number, kind: "number", hideBelow: 640 },
      { name: "Next offset", value: nextOffset, text: number, kind: "number" },
      { name: "Records", value: (one) => one.message_count, text: number, kind: "number" },
      { name: "Size", value: (one) => one.total_bytes, text: bytes, kind: "number" },
      mayDelete && {
        name: "",
        kind: "actions",
        hideBelow: 640,
        render: (one) => one.message_count > 0 && h(
          "button",
          { type: "button", class: "quiet", "aria-label": `Delete records of partition ${one.partition_id}`, onclick: () => remove(one.partition_id) },
          "Delete records",
        ),
      },
    ].filter(Boolean),
    sort: "Partition",
    tools: [
      mayDelete && button("Delete records", () => remove(""), { kind: "danger-quiet", icon: "trash" }),
      mayAdd && button("Add partitions", () => addPartitions(topic), { icon: "plus" }),
    ].filter(Boolean),
  });
  const draw = () => {
    const sum = (value) => partitions.reduce((total, one) => total + value(one), 0);
    figures.partitions.set(number(partitions.length));
    figures.records.set(number(sum((one) => one.message_count)), "offsets that can be read");
    figures.size.set(bytes(sum((one) => one.total_bytes)));
    table.setRows(partitions);
  };
  async function refresh() {
    partitions = await load();
    draw();
  }
  draw();
  show(element, keyFigures("Topic", Object.values(figures)), table.element, commandHint(line("kwire", "topic", "describe", topic.name)).element);
}

// The newest offset of an empty partition is null.
export const nextOffset = ({ max_offset: newest, min_offset: first, message_count: records }) => (records > 0 && newest !== null ? newest + 1 : (first ?? 0));

function addPartitions({ name, partitionCount }) {
  formDialog({
    title: `Add partitions to ${name}`,
    about: "Partitions cannot be removed. Records with a key go to other partitions afterwards, so their order by key is kept only within each partition.",
    action: "Add partitions",
    fields: [
      field({
        name: "total",
        label: "Partitions in total",
        type: "number",
        value: partitionCount + 1,
        min: partitionCount + 1,
        max: PARTITIONS_MAX,
        required: true,
        autofocus: true,
        hint: `Now: ${number(partitionCount)}`,
      }),
    ],
    command: ({ total }) => line("kwire", "topic", "add-partitions", name, "--partitions", String(total ?? "")),
    run: async ({ total }) => {
      throwFirst(await kafka("CreatePartitions", { topics: [{ name, count: total, assignments: null }], timeout_ms: 30_000, validate_only: false }));
      toast(`Topic ${name} has ${count(total, "partition")}.`);
      go(url("/topics", name, "partitions"), { replace: true });
    },
  });
}
