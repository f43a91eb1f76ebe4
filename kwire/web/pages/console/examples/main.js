// Starts the page of an example: the session, then the frame, then the module of the path.
import { ApiError } from "../js/api.js";
import { h, show } from "../js/dom.js";
import { emptyState, failure } from "../js/elements.js";
import { render as renderLogin } from "../js/pages/login.js";
import { loadSession, needsLogin } from "../js/session.js";
import { themeSwitch } from "../js/shell.js";

const HOME = "/examples";
const EXAMPLES = [
  { name: "chat", title: "Chat", load: () => import("./chat.js") },
  { name: "lobby", title: "Game lobby", load: () => import("./lobby.js") },
  { name: "monitoring", title: "Monitoring", load: () => import("./monitoring.js") },
];
const app = document.getElementById("app");

async function start() {
  try {
    await loadSession();
  } catch (error) {
    show(app, h("main", { id: "main", class: "alone" }, failure(error, start)));
    return;
  }
  if (needsLogin()) {
    document.title = "Log in · kwire";
    renderLogin(app, start);
    return;
  }
  const name = location.pathname.slice(HOME.length + 1);
  const found = EXAMPLES.find((one) => one.name === name);
  const main = h("main", { id: "main", class: "example" });
  show(app, h("div", { class: "example-frame" }, bar(name), main));
  document.title = `${found?.title ?? "Examples"} · kwire`;
  try {
    if (found) await (await found.load()).render(main, new URLSearchParams(location.search));
    else if (name === "") (await import("./home.js")).render(main);
    else show(main, emptyState({ icon: "search", title: "There is no such example", text: location.pathname }));
  } catch (error) {
    show(main, failure(error));
    if (!(error instanceof ApiError)) throw error;
  }
}

function bar(current) {
  const link = ({ name, title }) => h("a", { href: `${HOME}/${name}`, "aria-current": name === current ? "page" : null }, title);
  return h(
    "header",
    { class: "example-bar" },
    h("a", { class: "brand", href: HOME, "aria-label": "Examples of kwire" }, h("span", { class: "mark", "aria-hidden": "true" }, "k"), h("span", { class: "brand-text" }, "kwire")),
    h("nav", { "aria-label": "Examples" }, EXAMPLES.map(link)),
    h("span", { class: "example-tools" }, h("a", { class: "button quiet", href: "/console" }, "Console"), themeSwitch()),
  );
}

start();
