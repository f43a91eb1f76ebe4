// Deletes the records of a topic before an offset or a time, after it has shown what will be gone.
import { ApiError, kafka, throwFirst } from "../../api.js";
import { line } from "../../command.js";
import { confirmAction } from "../../dialog.js";
import { h } from "../../dom.js";
import { field, formDialog } from "../../form.js";
import { count, number } from "../../format.js";
import { dataTable } from "../../table.js";
import { nextOffset } from "./partitions.js";

// The end of a partition, for DeleteRecords.
const HIGH_WATERMARK = -1;
const BEFORE = [["offset", "an offset"], ["time", "a point in time"], ["end", "the end: all records"]];

// `load` returns the partitions of GET /topics/{topic}/stats. `partition` is chosen at first; "" stands for all.
export async function deleteRecords(topic, { partition, load, onDone }) {
  const partitions = await load();
  const before = field({ name: "before", label: "Delete the records before", type: "select", options: BEFORE, value: "offset" });
  const offset = field({
    name: "offset",
    label: "Offset",
    type: "number",
    min: 0,
    value: partitions.find((one) => one.partition_id === partition)?.min_offset ?? 0,
    required: true,
    hint: "The record at this offset stays.",
  });
  const time = field({ name: "time", label: "Time", type: "datetime-local", step: 1, hint: "Records from this time on stay." });
  const fields = [
    field({
      name: "partition",
      label: "Partitions",
      type: "select",
      value: partition,
      options: [["", "all partitions"], ...partitions.map((one) => [one.partition_id, `partition ${one.partition_id}`])],
    }),
    before,
    offset,
    time,
  ];
  const draw = () => {
    offset.element.hidden = before.read() !== "offset";
    time.element.hidden = before.read() !== "time";
  };
  before.control.addEventListener("input", draw);
  draw();
  formDialog({
    title: `Delete records of ${topic.name}`,
    action: "Continue",
    fields,
    command: (values) => command(topic, values),
    run: async (values) => {
      if (values.before === "time" && !values.time) throw new ApiError("Choose a time.", { code: "time" });
      const moves = await newStarts(topic, await load(), values);
      // The form is closed before the question is asked.
      setTimeout(() => confirm(topic, moves, values, onDone));
    },
    fieldOf: (error) => (error.code === "time" ? "time" : null),
  });
}

const command = ({ name }, { before, offset, time, partition }) =>
  line(
    "kwire",
    "topic",
    "trim",
    name,
    "--before",
    { offset: String(offset ?? 0), time: isoTime(time), end: "latest" }[before],
    partition !== "" && ["--partition", String(partition)],
  );

const isoTime = (value) => (value ? new Date(value).toISOString().replace(".000", "") : "TIME");

// The first offset that stays, of each partition that loses records.
async function newStarts({ name }, partitions, { before, offset, time, partition }) {
  const chosen = partitions.filter((one) => partition === "" || one.partition_id === Number(partition));
  const atTime = before === "time" ? await offsetsAt(name, chosen, new Date(time).getTime()) : null;
  return chosen
    .map((one) => {
      const end = nextOffset(one);
      const wanted = before === "end" ? end : before === "offset" ? offset : atTime.get(one.partition_id);
      // No record is that young: all are older.
      const start = wanted < 0 ? end : Math.min(wanted, end);
      return { partition: one.partition_id, from: one.min_offset ?? 0, start, isEnd: start === end };
    })
    .filter((one) => one.start > one.from);
}

async function offsetsAt(name, partitions, timestamp) {
  const wanted = partitions.map((one) => ({ partition_index: one.partition_id, timestamp }));
  const answer = throwFirst(await kafka("ListOffsets", { replica_id: -1, topics: [{ name, partitions: wanted }] }));
  return new Map(answer.topics[0].partitions.map((one) => [one.partition_index, one.offset]));
}

async function confirm(topic, moves, values, onDone) {
  const { name } = topic;
  const gone = moves.reduce((sum, one) => sum + one.start - one.from, 0);
  const table = dataTable({
    label: "Records that are deleted",
    noun: "partition",
    rows: moves,
    columns: [
      { name: "Partition", value: (one) => one.partition, text: String },
      { name: "Offsets", value: (one) => `${number(one.from)} to ${number(one.start - 1)}` },
      { name: "Gone", value: (one) => one.start - one.from, text: number, kind: "number" },
    ],
    sort: "Partition",
  });
  const isDone = await confirmAction({
    title: `Delete records of ${name}`,
    effect: moves.length
      ? [h("p", {}, `${count(gone, "offset")} of ${count(moves.length, "partition")} can no longer be read. This cannot be undone.`), table.element]
      : "No record is before this point. Nothing will change.",
    typeName: moves.length ? name : null,
    command: command(topic, values),
    action: "Delete records",
    done: `Records of ${name} were deleted.`,
    run: async () => {
      // `all records` includes those that were written since.
      const partitions = moves.map((one) => ({ partition_index: one.partition, offset: values.before === "end" ? HIGH_WATERMARK : one.start }));
      if (partitions.length) throwFirst(await kafka("DeleteRecords", { topics: [{ name, partitions }], timeout_ms: 30_000 }));
    },
  });
  if (isDone) await onDone();
}
