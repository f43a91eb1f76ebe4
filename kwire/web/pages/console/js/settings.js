// A table of settings with their documentation, which can be changed: of topics, groups and the node.
import { kafka, throwFirst } from "./api.js";
import { confirmAction } from "./dialog.js";
import { h, show } from "./dom.js";
import { badge } from "./elements.js";
import { field, formDialog } from "./form.js";
import { bytes, duration } from "./format.js";
import { dataTable } from "./table.js";
import { toast } from "./toast.js";

// Kafka's codes of resources, sources of settings, types of settings, and operations on settings.
export const RESOURCES = { topic: 2, broker: 4, group: 32 };
const OWN_SOURCES = { topic: [1], broker: [2, 3, 4], group: [8] };
const SOURCES = { 1: "topic", 2: "broker", 3: "all brokers", 4: "file", 5: "default", 6: "client metrics", 8: "group" };
const BOOLEAN = 1;
const SET = 0;
const DELETE = 1;
const NO_LIMIT = "9223372036854775807";

// settingsTable({resource: "topic", name: "orders", mayAlter: true, alterCommand: (change) => "kwire …", view})
// -> {element, load()}. `change` is {name, value}; a value of null stands for the default.
export function settingsTable({ resource, name, mayAlter, alterCommand, view }) {
  let settings = null;
  let onlyOwn = false;
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "Settings shown" });
  const action = (text, setting, run) => h(
    "button",
    { type: "button", class: "quiet", "aria-label": `${text} ${setting.name}`, onclick: () => run(setting) },
    text,
  );
  // "" if the cluster does not tell: Apache Kafka leaves out defaults that no broker has in its file.
  const inheritedValue = (setting) => {
    const synonym = setting.synonyms.find((one) => !OWN_SOURCES[resource].includes(one.source));
    return synonym ? valueIn(setting, synonym) ?? "none" : "";
  };
  const table = dataTable({
    label: "Settings",
    noun: "setting",
    view,
    columns: [
      {
        name: "Setting",
        value: (one) => one.name,
        render: (one) => [h("code", { class: "setting-name" }, one.name), h("span", { class: "setting-about" }, one.documentation)],
      },
      {
        name: "Value",
        value: (one) => one.value ?? "",
        width: "30%",
        render: (one) => [
          h("code", {}, one.is_sensitive ? "hidden" : (one.value ?? "")),
          h("span", { class: "setting-about" }, [meaning(one), isOwn(resource, one) && inheritedValue(one) && `default: ${inheritedValue(one)}`].filter(Boolean).join(" · ")),
        ],
      },
      {
        name: "Source",
        value: (one) => (isOwn(resource, one) ? 0 : 1),
        width: "7rem",
        hideBelow: 640,
        render: (one) => badge(SOURCES[one.config_source] ?? "default", isOwn(resource, one) ? "accent" : ""),
      },
      mayAlter && {
        name: "",
        kind: "actions",
        width: "9rem",
        render: (one) => !one.read_only && [isOwn(resource, one) && action("Reset", one, reset), action("Edit", one, edit)],
      },
    ].filter(Boolean),
    key: (one) => one.name,
    filter: (one) => `${one.name} ${one.value} ${one.documentation}`,
    sort: "Source",
    isStacked: true,
    tools: [choice],
  });
  const draw = () => {
    const own = settings?.filter((one) => isOwn(resource, one)) ?? [];
    const entries = [[false, "All"], [true, `Overridden ${settings ? own.length : ""}`.trim()]];
    show(
      choice,
      entries.map(([isOnly, text]) => h(
        "button",
        { type: "button", "aria-pressed": String(isOnly === onlyOwn), onclick: () => { onlyOwn = isOnly; draw(); } },
        text,
      )),
    );
    if (settings) table.setRows(onlyOwn ? own : settings);
  };

  async function load() {
    try {
      const wanted = { resource_type: RESOURCES[resource], resource_name: name, configuration_keys: null };
      const answer = throwFirst(await kafka(
        "DescribeConfigs",
        { resources: [wanted], include_synonyms: true, include_documentation: true },
        { signal: view.signal },
      ));
      settings = answer.results[0].configs
        .map((one) => ({ ...one, documentation: plainText(one.documentation ?? "") }))
        .sort((one, other) => (one.name < other.name ? -1 : 1));
      draw();
    } catch (error) {
      table.setFailure(error, load);
      if (!error.code) throw error;
    }
  }

  async function alter(setting, value) {
    const change = { name: setting.name, config_operation: value === null ? DELETE : SET, value };
    const changed = { resource_type: RESOURCES[resource], resource_name: name, configs: [change] };
    throwFirst(await kafka("IncrementalAlterConfigs", { resources: [changed], validate_only: false }));
    toast(`The setting ${setting.name} was changed.`);
    await load();
  }

  function edit(setting) {
    const options = setting.config_type === BOOLEAN ? { type: "select", options: [["true", "true"], ["false", "false"]] } : {};
    formDialog({
      title: setting.name,
      about: setting.documentation,
      action: "Save",
      fields: [field({
        name: "value",
        label: "Value",
        value: setting.value ?? "",
        wide: true,
        autofocus: true,
        hint: inheritedValue(setting) && `Default: ${inheritedValue(setting)}`,
        ...options,
      })],
      command: (values) => alterCommand({ name: setting.name, value: values.value }),
      run: (values) => alter(setting, values.value),
      fieldOf: () => "value",
    });
  }

  const reset = (setting) =>
    confirmAction({
      title: `Reset ${setting.name}`,
      effect: `The value ${setting.value ?? "none"} is removed. The default applies again${inheritedValue(setting) && `: ${inheritedValue(setting)}`}.`,
      command: alterCommand({ name: setting.name, value: null }),
      action: "Reset",
      kind: "primary",
      run: () => alter(setting, null),
    });

  draw();
  return { element: table.element, load };
}

const isOwn = (resource, { config_source: source }) => OWN_SOURCES[resource].includes(source);

// The text of a documentation that may be HTML, as that of Apache Kafka is. Nothing in it is loaded or run.
const IS_HTML = /<\/(a|b|code|i|li|p|ul)>|<(br|p)>/;
const plainText = (text) => (IS_HTML.test(text) ? new DOMParser().parseFromString(text, "text/html").body.textContent : text);

// The milliseconds of the units in which settings of a broker may be.
const UNITS_MS = { hours: 3_600_000, minutes: 60_000 };

// The value of a synonym in the unit of the setting: log.retention.hours=168 is 604800000 for retention.ms.
function valueIn({ name }, synonym) {
  const factor = name.endsWith(".ms") ? UNITS_MS[synonym.name.split(".").at(-1)] : undefined;
  return factor && synonym.value > 0 ? String(synonym.value * factor) : synonym.value;
}

// A value in words: 604800000 of retention.ms is "7 d".
function meaning({ name, value }) {
  if (value === null || !/^-?\d+$/.test(value)) return "";
  if (value === NO_LIMIT || (value === "-1" && /(\.ms|\.bytes|messages)$/.test(name))) return "unlimited";
  const amount = Number(value);
  if (amount >= 1000 && name.endsWith(".ms")) return duration(amount);
  if (amount >= 1024 && name.endsWith(".bytes")) return bytes(amount);
  return "";
}
