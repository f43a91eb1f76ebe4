// The settings of a topic.
import { commandHint, line } from "../../command.js";
import { h, show } from "../../dom.js";
import { dataTable } from "../../table.js";

export async function settingsTab(element, topic, view) {
  show(
    element,
    dataTable({
      label: "Settings",
      noun: "setting",
      view,
      rows: Object.entries(topic.configs).map(([name, value]) => ({ name, value })),
      columns: [
        { name: "Setting", value: (one) => one.name, render: (one) => h("code", {}, one.name) },
        { name: "Value", value: (one) => one.value ?? "", render: (one) => h("code", {}, one.value ?? "") },
      ],
      filter: (one) => `${one.name} ${one.value}`,
      sort: "Setting",
    }).element,
    commandHint(line("kwire", "config", "describe", "topic", topic.name)).element,
  );
}
