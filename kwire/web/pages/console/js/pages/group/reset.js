// Reset of the committed offsets of a group, with a preview of every partition.
import { kafka, throwFirst } from "../../api.js";
import { commandHint, line } from "../../command.js";
import { openDialog } from "../../dialog.js";
import { h, show } from "../../dom.js";
import { button, notice } from "../../elements.js";
import { field } from "../../form.js";
import { count, number } from "../../format.js";
import { dataTable } from "../../table.js";
import { toast } from "../../toast.js";

const EARLIEST = -2;
const LATEST = -1;
// From this version on, partitions are committed by topic id.
const LAST_COMMIT_VERSION_WITH_NAMES = 9;

// The scenarios of `kwire group reset`. `option` returns the words of the command line.
const SCENARIOS = {
  earliest: { text: "the first offset", option: () => ["--to-earliest"] },
  latest: { text: "the end", option: () => ["--to-latest"] },
  offset: { text: "an offset", input: { type: "number", min: 0, value: 0, label: "Offset" }, option: (value) => ["--to-offset", String(value)] },
  shift: { text: "a number of records forward or back", input: { type: "number", value: -1, label: "Records (negative: back)" }, option: (value) => ["--shift-by", String(value)] },
  time: { text: "a point in time", input: { type: "datetime-local", step: 1, label: "Time" }, option: (value) => ["--to-datetime", isoTime(value)] },
};

export function resetOffsets(group, { onDone }) {
  const topics = [...new Set(group.offsets.map((one) => one.topic))].sort();
  const hasMembers = group.member_count > 0;
  let moves = [];
  const scenario = field({ name: "scenario", label: "Move to", type: "select", value: "earliest", options: Object.entries(SCENARIOS).map(([id, one]) => [id, one.text]) });
  const topic = field({ name: "topic", label: "Topic", type: "select", value: "", options: [["", "all topics of the group"], ...topics.map((one) => [one, one])] });
  const inputPlace = h("div", {});
  const preview = h("div", {});
  const error = h("div", {});
  const hint = commandHint("");
  let input = null;

  const makeInput = () => {
    const wanted = SCENARIOS[scenario.read()].input;
    input = wanted ? field({ name: "value", required: true, ...wanted }) : null;
    input?.control.addEventListener("input", update);
    show(inputPlace, input?.element);
  };
  const words = (isExecuted) => line("kwire", "group", "reset", group.group_id, SCENARIOS[scenario.read()].option(input?.read()), topic.read() && ["--topic", topic.read()], isExecuted && "--execute");
  const execute = button("Reset offsets", run, { kind: "danger", disabled: true });
  let turn = 0;

  async function update() {
    const mine = (turn += 1);
    execute.disabled = true;
    hint.set(words(true));
    if (input && !input.isValid()) return void show(preview);
    try {
      const found = await newOffsets(group, scenario.read(), input?.read(), topic.read());
      if (mine !== turn) return;
      moves = found;
      show(error);
      show(preview, table(found));
      execute.disabled = hasMembers || !found.some((one) => one.to !== one.from);
    } catch (failed) {
      if (mine === turn) show(error, notice(failed.message, "bad"));
    }
  }

  async function run() {
    execute.disabled = true;
    try {
      await commit(group.group_id, moves);
      dialog.close();
      toast(`Reset ${count(moves.length, "offset")} of ${group.group_id}.`);
      await onDone();
    } catch (failed) {
      execute.disabled = false;
      show(error, notice(failed.message, "bad"));
    }
  }

  scenario.control.addEventListener("change", () => {
    makeInput();
    update();
  });
  topic.control.addEventListener("change", update);
  const dialog = openDialog({
    title: `Reset offsets of ${group.group_id}`,
    wide: true,
    body: h(
      "div",
      { class: "stack" },
      hasMembers && notice(`The group has ${count(group.member_count, "member")}. Stop its consumers before you reset its offsets.`, "warn"),
      h("div", { class: "form" }, scenario.element, topic.element, inputPlace),
      h("h3", {}, "Preview"),
      preview,
      hint.element,
      error,
    ),
    actions: [button("Cancel", () => dialog.close()), execute],
  });
  makeInput();
  update();
}

function table(moves) {
  if (!moves.length) return notice("No partition of this group has a committed offset.");
  return dataTable({
    label: "Preview",
    noun: "partition",
    rows: moves,
    columns: [
      { name: "Partition", value: (one) => `${one.topic}-${one.partition}` },
      { name: "Committed", value: (one) => one.from, text: number, kind: "number", hideBelow: 640 },
      { name: "New offset", value: (one) => one.to, text: number, kind: "number" },
      { name: "Records", value: (one) => (one.from === null ? null : one.to - one.from), text: changeText, kind: "number" },
    ],
    sort: "Partition",
  }).element;
}

// What a consumer will notice of a move: records that it reads again, or never.
function changeText(distance) {
  return distance === 0 ? "none" : distance < 0 ? `${number(-distance)} again` : `${number(distance)} skipped`;
}

// The new offset of each partition, between the first offset and the end.
async function newOffsets(group, scenario, value, topic) {
  const partitions = group.offsets.filter((one) => !topic || one.topic === topic);
  if (!partitions.length) return [];
  const first = await offsetsAt(partitions, EARLIEST);
  const ends = await offsetsAt(partitions, LATEST);
  const atTime = scenario === "time" ? await offsetsAt(partitions, new Date(value).getTime()) : null;
  const wanted = (one, key) => {
    if (scenario === "earliest") return first.get(key);
    if (scenario === "latest") return ends.get(key);
    if (scenario === "offset") return value;
    if (scenario === "shift") return (one.committed_offset ?? ends.get(key)) + value;
    // No record has this or a later timestamp: the end.
    return atTime.get(key) < 0 ? ends.get(key) : atTime.get(key);
  };
  return partitions.map((one) => {
    const key = keyOf(one.topic, one.partition);
    const to = Math.min(Math.max(wanted(one, key), first.get(key)), ends.get(key));
    return { topic: one.topic, partition: one.partition, from: one.committed_offset, to };
  });
}

async function offsetsAt(partitions, timestamp) {
  const topics = byTopic(partitions, (one) => ({ partition_index: one.partition, timestamp }));
  const answer = throwFirst(await kafka("ListOffsets", { replica_id: -1, topics }));
  return new Map(answer.topics.flatMap((topic) => topic.partitions.map((one) => [keyOf(topic.name, one.partition_index), one.offset])));
}

async function commit(groupId, moves) {
  const topics = byTopic(moves, (one) => ({ partition_index: one.partition, committed_offset: one.to, committed_metadata: "" }));
  throwFirst(await kafka("OffsetCommit", { group_id: groupId, member_id: "", topics }, { version: LAST_COMMIT_VERSION_WITH_NAMES }));
}

function byTopic(partitions, partitionOf) {
  const topics = new Map();
  for (const one of partitions) {
    if (!topics.has(one.topic)) topics.set(one.topic, { name: one.topic, partitions: [] });
    topics.get(one.topic).partitions.push(partitionOf(one));
  }
  return [...topics.values()];
}

const keyOf = (topic, partition) => `${topic}/${partition}`;
const isoTime = (value) => (value ? new Date(value).toISOString().replace(".000", "") : "TIME");
