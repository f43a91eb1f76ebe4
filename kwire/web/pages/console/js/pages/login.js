// The page for logging in with a user or with an API key.
import { h, show } from "../dom.js";
import { field, form } from "../form.js";
import { logIn } from "../session.js";

const WAYS = [
  { name: "User", fields: () => [
    field({ name: "user", label: "User", autocomplete: "username", required: true, autofocus: true }),
    field({ name: "password", label: "Password", type: "password", autocomplete: "current-password", required: true }),
  ] },
  { name: "API key", fields: () => [
    field({ name: "token", label: "Token of the API key", type: "password", autocomplete: "off", required: true, autofocus: true }),
  ] },
];

// Shows the page in `element`. `done` is called after a login.
export function render(element, done) {
  let way = WAYS[0];
  const place = h("div", {});
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "Log in with" });
  const draw = () => {
    show(choice, WAYS.map((one) => h("button", { type: "button", "aria-pressed": String(one === way), onclick: () => { way = one; draw(); } }, one.name)));
    const made = form({
      fields: way.fields(),
      action: "Log in",
      run: async (values) => {
        await logIn(values);
        done();
      },
    });
    made.element.classList.add("login-form");
    show(place, made.element);
    place.querySelector("input").focus();
  };
  show(
    element,
    h("main", { id: "main", class: "alone" }, h("div", { class: "card login" }, h("div", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }, "k"), h("span", {}, "kwire")), h("h1", {}, "Log in"), choice, place)),
  );
  draw();
}
