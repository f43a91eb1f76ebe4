// The quotas of users, client ids and addresses.
import { commandHint, line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { badge, button, card, emptyState, pageHeader } from "../elements.js";
import { addKey } from "../keys.js";
import { may } from "../session.js";
import { dataTable } from "../table.js";
import { editQuotas } from "./quotas/edit.js";
import { KINDS, allQuotas, alterQuotas, deleteCommand, entityText, partsOf } from "./quotas/model.js";

export const title = "Quotas";

export async function render(element, view) {
  const mayAlter = may("ALTER_CONFIGS");
  const load = async () => {
    try {
      table.setRows(await allQuotas(view.signal));
    } catch (error) {
      table.setFailure(error, load);
      if (!error.code) throw error;
    }
  };
  const set = () => editQuotas({ onDone: load });
  const setButton = (kind) => mayAlter && button("Set quotas", set, { kind, icon: "plus" });
  const table = dataTable({
    label: "Quotas",
    noun: "entity",
    nouns: "entities",
    view,
    columns: [
      { name: "For", value: (one) => entityText(one.entity), render: entityCell },
      { name: "Quotas", value: (one) => quotaTexts(one).join(", "), render: (one) => h("span", { class: "row" }, quotaTexts(one).map((text) => badge(text))) },
      mayAlter && { name: "", kind: "actions", width: "10rem", render: (one) => actions(one, load) },
    ].filter(Boolean),
    key: (one) => entityText(one.entity),
    filter: (one) => `${entityText(one.entity)} ${Object.keys(one.values).join(" ")}`,
    sort: "For",
    isStacked: true,
    empty: emptyState({ icon: "quotas", title: "No quotas", text: "Without quotas, nothing is counted or limited.", action: setButton("") }),
  });
  show(
    element,
    pageHeader({ title: "Quotas", about: "How much users, client ids and addresses may use.", actions: [setButton("primary")] }),
    h("div", { class: "stack" }, table.element, explanation(), commandHint(line("kwire", "quota", "list")).element),
  );
  if (mayAlter) addKey(view, "n", "Set quotas", set);
  await load();
}

const quotaTexts = ({ values }) => Object.entries(values).map(([key, value]) => (KINDS[key] ? `${KINDS[key].name} ${KINDS[key].text(value)}` : `${key} ${value}`));

function entityCell({ entity }) {
  return h("span", { class: "row" }, partsOf(entity).map(([type, name]) => [h("span", { class: name === null ? "" : "muted" }, type), name !== null && h("b", {}, name)]));
}

function actions({ entity, values }, onDone) {
  const name = entityText(entity);
  return [
    h("button", { type: "button", class: "quiet", "aria-label": `Edit the quotas of ${name}`, onclick: () => editQuotas({ entity, values, onDone }) }, "Edit"),
    h("button", { type: "button", class: "quiet", "aria-label": `Remove the quotas of ${name}`, onclick: () => removeQuotas({ entity, values }, onDone) }, "Remove"),
  ];
}

async function removeQuotas({ entity, values }, onDone) {
  const isDone = await confirmAction({
    title: `Remove the quotas of ${entityText(entity)}`,
    effect: `These quotas are removed: ${quotaTexts({ values }).join(", ")}. A quota that is less specific, such as a default, applies instead if there is one.`,
    command: deleteCommand(entity),
    action: "Remove",
    done: `The quotas of ${entityText(entity)} were removed.`,
    run: () => alterQuotas(entity, Object.fromEntries(Object.keys(values).map((key) => [key, null]))),
  });
  if (isDone) await onDone();
}

function explanation() {
  return card(
    { title: "What the quotas mean" },
    h(
      "div",
      { class: "stack" },
      h("dl", { class: "facts" }, Object.entries(KINDS).map(([key, one]) => h("div", {}, h("dt", {}, one.name, " ", h("code", {}, key)), h("dd", {}, one.about, one.isOfAddress && " For addresses only.")))),
      h(
        "p",
        { class: "about" },
        "Rates are averages over about ten seconds. A Kafka client above its quota waits; an HTTP request is refused with 429, and a stream pauses. If several quotas fit a client, only one applies: "
          + "that of the user with the client id, else of the user, else the default of users, else of the client id, else the default of client ids. All connections to which a quota applies share it.",
      ),
    ),
  );
}
