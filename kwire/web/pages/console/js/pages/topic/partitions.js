// The partitions of a topic: offsets, records and sizes.
import { get } from "../../api.js";
import { line, commandHint } from "../../command.js";
import { show } from "../../dom.js";
import { keyFigure, keyFigures } from "../../elements.js";
import { bytes, number } from "../../format.js";
import { dataTable } from "../../table.js";

export async function partitionsTab(element, topic, view) {
  const { partitions } = await get(`/topics/${encodeURIComponent(topic.name)}/stats`, { signal: view.signal });
  const sum = (value) => partitions.reduce((total, one) => total + value(one), 0);
  show(
    element,
    keyFigures("Topic", [
      keyFigure({ name: "Partitions", value: number(partitions.length) }),
      keyFigure({ name: "Records", value: number(sum((one) => one.message_count)), about: "offsets that can be read" }),
      keyFigure({ name: "Size", value: bytes(sum((one) => one.total_bytes)) }),
    ]),
    dataTable({
      label: "Partitions",
      noun: "partition",
      view,
      rows: partitions,
      columns: [
        { name: "Partition", value: (one) => one.partition_id, text: String },
        { name: "First offset", value: (one) => one.min_offset, text: number, kind: "number", hideBelow: 640 },
        { name: "Next offset", value: (one) => one.max_offset + 1, text: number, kind: "number" },
        { name: "Records", value: (one) => one.message_count, text: number, kind: "number" },
        { name: "Size", value: (one) => one.total_bytes, text: bytes, kind: "number" },
      ],
      sort: "Partition",
    }).element,
    commandHint(line("kwire", "topic", "describe", topic.name)).element,
  );
}
