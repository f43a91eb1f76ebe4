// Setting the quotas of a new or a known entity.
import { h, show } from "../../dom.js";
import { openDialog } from "../../dialog.js";
import { field, form } from "../../form.js";
import { toast } from "../../toast.js";
import { ENTITIES, KINDS, TYPE_NAMES, alterQuotas, deleteCommand, entityText, kindsOf, setCommand } from "./model.js";

// editQuotas({entity, values, onDone}). Without an entity, the user chooses it.
export function editQuotas({ entity: known, values: present = {}, onDone }) {
  const place = h("div", {});
  const dialog = openDialog({ title: known ? `Quotas of ${entityText(known)}` : "Set quotas", body: place });
  let kind = "user";

  // Another kind of entity has other fields.
  const draw = () => {
    const types = known ? [] : ENTITIES[kind].types;
    const choice = known
      ? []
      : [field({ name: "kind", label: "For", type: "select", options: Object.entries(ENTITIES).map(([id, one]) => [id, one.text]), value: kind, wide: true })];
    choice[0]?.control.addEventListener("change", () => {
      kind = choice[0].read();
      draw();
      place.querySelector("select").focus();
    });
    const names = types.map((type) => field({ name: type, label: TYPE_NAMES[type], placeholder: "default", wide: types.length === 1, hint: `Empty: the default, for those without quotas of their own.` }));
    const entityOf = (values) => known ?? types.map((type) => ({ entity_type: type, entity_name: values[type] || null }));
    const kinds = kindsOf(known ?? types.map((type) => ({ entity_type: type })));
    const limits = kinds.map((key) =>
      field({
        name: key,
        label: `${KINDS[key].name}, ${KINDS[key].unit}`,
        type: "number",
        min: 0,
        step: "any",
        placeholder: "no quota",
        value: present[key] ?? "",
        hint: KINDS[key].about,
      }),
    );
    const changed = (values) => Object.fromEntries(kinds.filter((key) => values[key] !== (present[key] ?? null)).map((key) => [key, values[key]]));
    const made = form({
      fields: [...choice, ...names, ...limits],
      action: "Save",
      onCancel: () => dialog.close(),
      command: (values) => commandsOf(entityOf(values), changed(values)),
      run: async (values) => {
        const wanted = changed(values);
        if (Object.keys(wanted).length) await alterQuotas(entityOf(values), wanted);
        dialog.close();
        await onDone();
        toast(`The quotas of ${entityText(entityOf(values))} were saved.`);
      },
    });
    show(place, made.element);
  };
  draw();
}

// A change may set some quotas and remove others, for which there are two commands.
function commandsOf(entity, changed) {
  const removed = Object.keys(changed).filter((key) => changed[key] === null);
  const set = Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== null));
  const isSet = Object.keys(set).length > 0;
  if (!isSet && !removed.length) return setCommand(entity, { producer_byte_rate: "BYTES" });
  return { ...(isSet && { set: setCommand(entity, set) }), ...(removed.length && { delete: deleteCommand(entity, removed) }) };
}
