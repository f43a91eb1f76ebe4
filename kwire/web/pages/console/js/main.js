// Starts the console: the session, then the frame, then the page of the path.
import { ApiError, connection, isAborted } from "./api.js";
import { h, show } from "./dom.js";
import { PAGES } from "./pages.js";
import { emptyState, failure, pageHeader, skeleton } from "./elements.js";
import { match, onNavigate, url } from "./router.js";
import { about, exists, isOffered, loadSession, needsLogin } from "./session.js";
import { frame } from "./shell.js";
import { View } from "./view.js";
import * as login from "./pages/login.js";

// A page that loads faster shows no placeholder.
const SKELETON_AFTER_MS = 150;

const app = document.getElementById("app");
let view = null;
let shell = null;

async function start() {
  try {
    await loadSession();
  } catch (error) {
    show(app, h("main", { id: "main", class: "alone" }, failure(error, start)));
    return;
  }
  await navigate();
}

async function navigate() {
  view?.leave();
  if (needsLogin()) return showLogin();
  const found = match(PAGES);
  const current = (view = new View(found, setTitle));
  if (shell === null) {
    shell = frame();
    show(app, shell.element);
  }
  shell.mark(found.page?.parent ?? found.page?.path);
  const content = h("div", { class: "page" });
  show(shell.main, content);
  if (!found.page) {
    return showInstead(content, "Not found", emptyState({ icon: "search", title: "There is no such page", text: location.pathname }));
  }
  if (!isOffered(found.page)) return showFirstOffered(found, content);
  let title = found.page.name ?? "";
  const slow = setTimeout(() => show(content, skeleton()), SKELETON_AFTER_MS);
  try {
    const module = await found.page.load();
    clearTimeout(slow);
    if (current !== view) return;
    content.replaceChildren();
    title = typeof module.title === "function" ? module.title(found.params) : module.title;
    setTitle(title);
    await module.render(content, current);
  } catch (error) {
    clearTimeout(slow);
    if (isAborted(error) || current !== view) return;
    showInstead(content, title, failure(error, navigate));
    // An error of the server is shown; any other one is a defect of the page.
    if (!(error instanceof ApiError)) throw error;
  }
}
// The home page needs a right that many sessions do not have: they see the first page that they may see.
function showFirstOffered(found, content) {
  const first = PAGES.find((page) => page.name && isOffered(page));
  if (found.page.path === "/" && first) {
    history.replaceState(null, "", url(first.path));
    return navigate();
  }
  const { name, needs } = found.page;
  if (!exists(found.page)) {
    const text = "The records are on a Kafka cluster, and this bridge does not serve the requests of this page.";
    return showInstead(content, name ?? "Not served", emptyState({ icon: "server", title: "Not served by a bridge", text }));
  }
  const right = { AUDIT: "READ the audit log", TOPICS: "READ topics" }[needs] ?? `${needs} the cluster`;
  const text = `This page needs the right to ${right}.`;
  showInstead(content, name ?? "Not allowed", emptyState({ icon: "acls", title: "Not allowed", text }));
}

// Shows why a page is not shown.
function showInstead(content, title, reason) {
  setTitle(title);
  show(content, pageHeader({ title }), reason);
}

function showLogin() {
  view?.leave();
  shell = null;
  setTitle("Log in");
  login.render(app, start);
}

function setTitle(title) {
  document.title = `${title} · kwire${about.engine === "bridge" ? " bridge" : ""}`;
}

onNavigate(async () => {
  await navigate();
  // Readers of the screen continue at the new page, and the page starts at its top.
  scrollTo(0, 0);
  shell?.main.focus({ preventScroll: true });
});
connection.addEventListener("unauthorized", async () => {
  await loadSession();
  if (needsLogin()) showLogin();
});
connection.addEventListener("offline", () => shell?.setOnline(false));
connection.addEventListener("online", () => shell?.setOnline(true));
start();
