// The frame around every page: navigation (a drawer on narrow screens), the theme, the keys and the user.
import { connection } from "./api.js";
import { h, show } from "./dom.js";
import { icon } from "./icons.js";
import { showKeys, watchKeys } from "./keys.js";
import { PAGES, SECTIONS } from "./pages.js";
import { url } from "./router.js";
import { about, isOffered, logOut, session } from "./session.js";

const THEMES = [
  { name: "system", icon: "system", text: "Theme of the system" },
  { name: "light", icon: "sun", text: "Light theme" },
  { name: "dark", icon: "moon", text: "Dark theme" },
];

export function frame() {
  const offered = PAGES.filter((page) => page.section !== undefined && isOffered(page));
  const links = new Map();
  const navigation = h("nav", { class: "side-nav", "aria-label": "Pages" }, SECTIONS.map((section) => sectionOf(section, offered, links)));
  const main = h("main", { id: "main", tabindex: "-1" });
  const banner = h("div", { class: "banner", role: "status", hidden: true }, icon("alert"), "The server does not answer. The console tries again.");
  const side = h("aside", { class: "side", id: "side" }, brand(), navigation, foot());
  const menu = h(
    "button",
    { class: "quiet icon-button menu", "aria-label": "Menu", "aria-expanded": "false", "aria-controls": "side", onclick: () => setOpen(!side.classList.contains("open")) },
    icon("menu", 22),
  );
  const shade = h("div", { class: "shade", onclick: () => setOpen(false) });
  const setOpen = (isOpen) => {
    side.classList.toggle("open", isOpen);
    shade.classList.toggle("open", isOpen);
    menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) side.querySelector("a")?.focus();
  };
  side.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && side.classList.contains("open")) {
      setOpen(false);
      menu.focus();
    }
  });
  const element = h(
    "div",
    { class: "frame" },
    h("header", { class: "topbar" }, menu, brand()),
    side,
    shade,
    h("div", { class: "content" }, banner, main),
  );
  watchKeys(offered);
  return {
    element,
    main,
    setOnline: (isOnline) => (banner.hidden = isOnline),
    mark(path) {
      setOpen(false);
      for (const [one, link] of links) {
        if (one === path) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
  };
}

function brand() {
  return h("a", { class: "brand", href: url("/") }, h("span", { class: "mark", "aria-hidden": "true" }, "k"), h("span", {}, "kwire"));
}

function sectionOf(section, offered, links) {
  const pages = offered.filter((page) => page.section === section);
  if (!pages.length) return null;
  return h("div", { class: "side-section" }, section && h("h2", {}, section), h("ul", {}, pages.map((page) => {
    const link = h("a", { href: url(page.path) }, icon(page.icon), page.name);
    links.set(page.path, link);
    return h("li", {}, link);
  })));
}

function foot() {
  return h(
    "div",
    { class: "side-foot" },
    about.engine === "bridge" && bridgeLine(),
    session.kind !== "anonymous" && userLine(),
    h(
      "div",
      { class: "side-tools" },
      themeSwitch(),
      h("button", { class: "quiet icon-button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: showKeys }, icon("keyboard")),
      h("a", { class: "button quiet icon-button", href: "/docs", "aria-label": "HTTP API", title: "HTTP API" }, icon("docs")),
    ),
  );
}

function bridgeLine() {
  const upstream = about.upstream?.join(", ");
  return h("div", { class: "user" }, h("span", { class: "user-name" }, h("b", {}, "Bridge"), upstream && h("small", { title: upstream }, `over ${upstream}`)));
}

function userLine() {
  const about = [session.role, session.scope && `scope ${session.scope}`].filter(Boolean).join(" · ");
  const end = async () => {
    await logOut();
    connection.dispatchEvent(new Event("unauthorized"));
  };
  return h(
    "div",
    { class: "user" },
    h("span", { class: "user-name" }, h("b", { title: session.principal }, session.principal.replace(/^User:/, "")), about && h("small", {}, about)),
    h("button", { class: "quiet icon-button", "aria-label": "Log out", title: "Log out", onclick: end }, icon("logout")),
  );
}

// The button that chooses the theme of the system, the light or the dark one.
export function themeSwitch() {
  const button = h("button", { class: "quiet icon-button", onclick: () => choose((chosen() + 1) % THEMES.length) });
  const chosen = () => Math.max(0, THEMES.findIndex((one) => one.name === document.documentElement.dataset.theme));
  const choose = (index) => {
    const { name } = THEMES[index];
    if (index) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    if (index) localStorage.setItem("kwire.theme", name);
    else localStorage.removeItem("kwire.theme");
    draw();
  };
  const draw = () => {
    const now = THEMES[chosen()];
    show(button, icon(now.icon));
    button.setAttribute("aria-label", `${now.text}: change`);
    button.title = now.text;
  };
  draw();
  return button;
}
