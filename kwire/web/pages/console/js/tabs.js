// Tabs of a page. Each tab has an address of its own, so it can be linked and the browser's buttons work.
import { h, show } from "./dom.js";
import { failure, skeleton } from "./elements.js";
import { isAborted } from "./api.js";
import { go } from "./router.js";

// tabs({label: "Topic", items: [{id: "", name: "Partitions", href, render: async (element) => …}], selected: "configs"})
// An unknown `selected` shows the first tab. Left and right move between tabs.
export function tabs({ label, items, selected }) {
  const current = items.find((one) => one.id === (selected ?? "")) ?? items[0];
  const panel = h("div", { class: "tab-panel", role: "tabpanel", "aria-label": current.name });
  const links = items.map((one) =>
    h(
      "a",
      { role: "tab", href: one.href, "aria-selected": String(one === current), tabindex: one === current ? "0" : "-1" },
      one.name,
      one.count !== undefined && h("span", { class: "count" }, String(one.count)),
    ),
  );
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label }, links);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = links[(links.indexOf(document.activeElement) + step + links.length) % links.length];
    next.focus();
  });
  list.addEventListener("keyup", (event) => event.key === " " && go(document.activeElement.getAttribute("href")));
  const draw = async () => {
    show(panel, skeleton());
    const content = h("div", { class: "stack" });
    try {
      await current.render(content);
      show(panel, content);
    } catch (error) {
      if (!isAborted(error)) show(panel, failure(error, draw));
    }
  };
  draw();
  return h("div", { class: "tabbed" }, list, panel);
}
