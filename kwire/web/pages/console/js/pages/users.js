// The users: create, change passwords, delete. Passwords are only in the fields of an open dialog.
import { pagesOf, post, put, remove } from "../api.js";
import { commandHint, line } from "../command.js";
import { confirmAction } from "../dialog.js";
import { h, show } from "../dom.js";
import { badge, button, emptyState, notice, pageHeader } from "../elements.js";
import { field, formDialog } from "../form.js";
import { count } from "../format.js";
import { addKey } from "../keys.js";
import { url } from "../router.js";
import { may, session } from "../session.js";
import { dataTable } from "../table.js";
import { toast } from "../toast.js";

const PAGE = 1_000;
const USERS_MAX = 20_000;
const PASSWORD_LENGTH_MAX = 1_000;

// The roles, and what each of them allows.
const ROLES = {
  admin: { text: "admin: everything", kind: "warn" },
  operator: { text: "operator: topics, groups and settings, but no records", kind: "accent" },
  writer: { text: "writer: write to topics", kind: "info", isPrefixed: true },
  reader: { text: "reader: read topics and groups", kind: "info", isPrefixed: true },
};

export const title = "Users";

export async function render(element, view) {
  const mayAlter = may("ALTER");
  const load = async () => {
    try {
      table.setRows(await pagesOf("/users", "users", { limit: PAGE, max: USERS_MAX, signal: view.signal }));
    } catch (error) {
      table.setFailure(error, load);
      if (!error.status) throw error;
    }
  };
  const create = () => createUser(load);
  const createButton = (kind) => mayAlter && button("Create user", create, { kind, icon: "plus" });
  const table = dataTable({
    label: "Users",
    noun: "user",
    view,
    columns: [
      { name: "Name", value: (one) => one.name, render: (one) => [h("b", {}, one.name), isSelf(one.name) && [" ", badge("you", "accent")]] },
      { name: "Rights", value: (one) => rightsText(one), render: rights, width: "34%" },
      { name: "Mechanisms", value: (one) => one.mechanisms.join(", "), width: "18rem", hideBelow: 900 },
      mayAlter && { name: "", kind: "actions", width: "15rem", render: (one) => actions(one, load) },
    ].filter(Boolean),
    key: (one) => one.name,
    filter: (one) => `${one.name} ${rightsText(one)}`,
    sort: "Name",
    isStacked: true,
    empty: emptyState({ icon: "users", title: "No users yet", text: "A user logs in with a password, over Kafka with SASL and over HTTP.", action: createButton("") }),
  });
  show(
    element,
    pageHeader({ title: "Users", about: "Who can log in with a password, over Kafka and over HTTP.", actions: [createButton("primary")] }),
    h(
      "div",
      { class: "stack" },
      !session.has_acls && notice("This server has no authorizer: every client may do everything, also after a login. kwire.authorizer=acl makes roles and ACLs apply."),
      table.element,
      commandHint(line("kwire", "user", "list")).element,
    ),
  );
  if (mayAlter) addKey(view, "n", "Create a user", create);
  await load();
}

const isSelf = (name) => session.principal === `User:${name}`;
const roleText = ({ role, prefix }) => (prefix === "*" ? role : `${role} of ${prefix}*`);

function rightsText({ roles, other_acls: others }) {
  return [...roles.map(roleText), others > 0 && count(others, roles.length ? "more ACL" : "ACL")].filter(Boolean).join(", ");
}

function rights(user) {
  if (!session.has_acls) return h("span", { class: "muted" }, "everything");
  if (!user.roles.length && !user.other_acls) return h("span", { class: "muted" }, "none");
  const others = user.other_acls > 0 && h("a", { href: `${url("/acls")}?principal=${encodeURIComponent(`User:${user.name}`)}` }, count(user.other_acls, user.roles.length ? "more ACL" : "ACL"));
  return h("span", { class: "row" }, user.roles.map((one) => badge(roleText(one), ROLES[one.role]?.kind)), others);
}

function actions({ name }, onDone) {
  const action = (text, run) => h("button", { type: "button", class: "quiet", "aria-label": `${text} of ${name}`, onclick: run }, text);
  return [
    action("Change password", () => changePassword(name)),
    h("button", { type: "button", class: "quiet", "aria-label": `Delete ${name}`, onclick: () => deleteUser(name, onDone) }, "Delete"),
  ];
}

// The fields for a new password. It has to be typed twice, because it cannot be seen.
function passwordFields() {
  const common = { type: "password", autocomplete: "new-password", required: true, maxlength: PASSWORD_LENGTH_MAX };
  const least = `At least ${count(session.password_length_min, "character")}.`;
  const isShort = (text) => [...text].length < session.password_length_min;
  const password = field({ name: "password", label: "Password", hint: least, check: (text) => (isShort(text) ? least : ""), ...common });
  const again = field({ name: "again", label: "Repeat the password", check: (text) => (text === password.read() ? "" : "This is not the same password."), ...common });
  return [password, again];
}

const COMMAND_LABEL = "Command, asks for the password";

function createUser(onDone) {
  const role = session.has_acls && field({
    name: "role",
    label: "Role",
    type: "select",
    wide: true,
    value: "",
    options: [["", "no role: nothing, until ACLs are added"], ...Object.entries(ROLES).map(([id, one]) => [id, one.text])],
    hint: "A role is a set of ACLs. More ACLs can be added later.",
  });
  const prefix = session.has_acls && field({ name: "prefix", label: "Only names that begin with", maxlength: 249, wide: true, hint: "Empty: all topics, groups and transactional ids." });
  const drawPrefix = () => (prefix.element.hidden = !ROLES[role.read()]?.isPrefixed);
  const wanted = (values) => ({ role: values.role || undefined, prefix: (ROLES[values.role]?.isPrefixed && values.prefix) || undefined });
  formDialog({
    title: "Create user",
    action: "Create user",
    commandLabel: COMMAND_LABEL,
    fields: [field({ name: "name", label: "Name", required: true, maxlength: 255, wide: true, autofocus: true }), ...passwordFields(), role, prefix].filter(Boolean),
    command: (values) => {
      const { role: chosen, prefix: names } = wanted(values);
      return line("kwire", "user", "create", values.name || "NAME", chosen && ["--role", chosen], names && ["--prefix", names]);
    },
    run: async (values) => {
      await post("/users", { name: values.name, password: values.password, ...wanted(values) });
      await onDone();
      toast(`User ${values.name} was created.`);
    },
    fieldOf: (error) => (error.code === "InvalidPassword" ? "password" : ["UserExists", "InvalidUser"].includes(error.code) ? "name" : null),
  });
  if (role) {
    role.control.addEventListener("change", drawPrefix);
    drawPrefix();
  }
}

function changePassword(name) {
  formDialog({
    title: `Change the password of ${name}`,
    about: `Open connections of the user are closed within five seconds.${isSelf(name) ? " You have to log in again with the new password." : ""}`,
    action: "Change password",
    commandLabel: COMMAND_LABEL,
    fields: passwordFields(),
    command: () => line("kwire", "user", "passwd", name),
    fieldOf: (error) => (error.code === "InvalidPassword" ? "password" : null),
    run: async ({ password }) => {
      await put(`/users/${encodeURIComponent(name)}/password`, { password });
      toast(`The password of ${name} was changed.`);
    },
  });
}

async function deleteUser(name, onDone) {
  const isDone = await confirmAction({
    title: `Delete user ${name}`,
    effect: `${isSelf(name) ? "This is the user of your session. " : ""}The user can no longer log in, its connections are closed, and its ACLs are deleted. This cannot be undone.`,
    typeName: name,
    command: line("kwire", "user", "delete", name),
    action: "Delete user",
    done: `User ${name} was deleted.`,
    run: () => remove(`/users/${encodeURIComponent(name)}`),
  });
  if (isDone) await onDone();
}
