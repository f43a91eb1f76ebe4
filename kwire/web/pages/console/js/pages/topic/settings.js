// The settings of a topic.
import { commandHint, line } from "../../command.js";
import { show } from "../../dom.js";
import { settingsTable } from "../../settings.js";

export async function settingsTab(element, topic, view) {
  const table = settingsTable({
    resource: "topic",
    name: topic.name,
    mayAlter: topic.allows("ALTER_CONFIGS"),
    alterCommand: ({ name, value }) => line(
      "kwire",
      "topic",
      "alter",
      topic.name,
      value === null ? ["--delete-config", name] : ["--config", `${name}=${value}`],
    ),
    view,
  });
  show(element, table.element, commandHint(line("kwire", "config", "describe", `topic=${topic.name}`)).element);
  await table.load();
}
