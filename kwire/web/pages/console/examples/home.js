// The list of examples.
import { commandHint } from "../js/command.js";
import { h, show } from "../js/dom.js";
import { card, pageHeader } from "../js/elements.js";

const EXAMPLES = [
  { name: "chat", title: "Chat", text: "The last messages of a room, then live ones. A reload loses nothing and repeats nothing." },
  { name: "lobby", title: "Game lobby", text: "The state of a lobby is its history: players who join late see what everybody sees." },
  { name: "monitoring", title: "Monitoring", text: "Machines publish their load to a room. The page draws it while it arrives." },
  { name: "plot", title: "Plot", text: "Spark counts the events of an hour in three rooms, and the results become a picture. It needs Java and the extras spark and plots." },
];

export function render(element) {
  const shown = ({ name, title, text }) =>
    card(
      { title },
      h(
        "div",
        { class: "stack" },
        h("p", {}, text),
        commandHint(`kwire example ${name}`, { label: "Start it from a terminal" }).element,
        name !== "plot" && h("div", {}, h("a", { class: "button", href: `/examples/${name}`, "aria-label": `Open ${title}` }, "Open")),
      ),
    );
  show(element, pageHeader({ title: "Examples", about: "Small programs on rooms, with the clients of kwire." }), h("div", { class: "grid-2" }, EXAMPLES.map(shown)));
}
