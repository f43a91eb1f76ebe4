// Creating ACLs: one for each chosen operation.
import { ApiError, isAborted } from "../../api.js";
import { h, newId, show } from "../../dom.js";
import { field, formDialog } from "../../form.js";
import { count } from "../../format.js";
import { toast } from "../../toast.js";
import { CLUSTER_NAME, TYPES, commandOf, createAcls } from "./model.js";

// The types that the command line knows, too.
const CREATED = ["topic", "group", "transactional", "cluster"];

// createAcl({principals: async () => suggestions, principal, onDone})
export function createAcl({ principals, principal = "", onDone }) {
  const suggestions = h("datalist", { id: newId("principals") });
  const fields = {
    principal: field({
      name: "principal",
      label: "Principal",
      required: true,
      wide: true,
      autofocus: true,
      value: principal,
      placeholder: "User:alice",
      list: suggestions.id,
      hint: "User:NAME, or User:* for everybody.",
      check: (text) => (/^[^:]+:.+$/.test(text) ? "" : "A principal has the form User:NAME."),
    }),
    permission: field({ name: "permission", label: "Permission", type: "select", options: [["allow", "allow"], ["deny", "deny, even if another ACL allows it"]], value: "allow" }),
    host: field({ name: "host", label: "Host", value: "*", required: true, hint: "An IP address, or * for all." }),
    type: field({ name: "type", label: "Resource", type: "select", options: CREATED.map((one) => [one, TYPES[one].text]), value: "topic" }),
    name: field({
      name: "name",
      label: "Name",
      placeholder: "orders",
      hint: "* stands for all.",
      check: (text) => (text || fields.type.read() === "cluster" ? "" : "Name the resource, or * for all."),
    }),
    isPrefixed: field({
      name: "isPrefixed",
      label: "All names that begin with this",
      type: "checkbox",
      wide: true,
      check: (isSet) => (isSet && fields.name.read() === "*" ? "* already stands for all names." : ""),
    }),
    operations: operationField(),
  };
  fields.principal.element.append(suggestions);
  const aclOf = (values) => {
    const isCluster = values.type === "cluster";
    return { ...values, name: isCluster ? CLUSTER_NAME : values.name, isPrefixed: !isCluster && values.isPrefixed };
  };
  formDialog({
    title: "Create ACL",
    action: "Create",
    fields: Object.values(fields),
    command: (values) => commandOf("add", { ...aclOf(values), principal: values.principal || "User:NAME", name: values.name || "NAME", operation: values.operations.join(",") || "OPERATION" }),
    run: async (values) => {
      const { operations, ...acl } = aclOf(values);
      await createAcls(operations.map((operation) => ({ ...acl, operation })));
      await onDone();
      toast(operations.length === 1 ? "The ACL was created." : `${count(operations.length, "ACL")} were created.`);
    },
  });
  const drawType = () => {
    const type = fields.type.read();
    fields.name.element.hidden = fields.isPrefixed.element.hidden = type === "cluster";
    fields.operations.setOptions(["all", ...TYPES[type].operations]);
  };
  fields.type.control.addEventListener("change", drawType);
  drawType();
  principals().then((names) => show(suggestions, names.map((one) => h("option", { value: one }))), ignoreMissing);
}

// Without suggestions, the principal is typed.
function ignoreMissing(error) {
  if (!(error instanceof ApiError) && !isAborted(error)) throw error;
}

// A field with a checkbox for each operation.
function operationField() {
  const id = newId("operations");
  const choices = h("div", { class: "choices" });
  const error = h("span", { class: "field-error", role: "alert" });
  const element = h(
    "div",
    { class: "field wide", role: "group", "aria-labelledby": id },
    h("span", { class: "field-label", id }, "Operations"),
    choices,
    h("span", { class: "field-hint" }, "read and write include describe."),
    error,
  );
  choices.addEventListener("input", () => (error.textContent = ""));
  const boxes = () => [...choices.querySelectorAll("input")];
  const read = () => boxes().filter((one) => one.checked).map((one) => one.value);
  return {
    element,
    name: "operations",
    get control() {
      return boxes()[0];
    },
    read,
    setOptions(names) {
      const chosen = read();
      show(choices, names.map((one) => h("label", {}, h("input", { type: "checkbox", value: one, checked: chosen.includes(one) }), one)));
    },
    setError: (message) => (error.textContent = message ?? ""),
    isValid() {
      error.textContent = read().length ? "" : "Choose at least one operation.";
      return !error.textContent;
    },
  };
}
