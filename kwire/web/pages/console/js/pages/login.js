// The page for logging in with a user or with an API key.
import { h, show } from "../dom.js";
import { field, form } from "../form.js";
import { logIn, session } from "../session.js";

const WAYS = [
  { method: "basic", name: "User", fields: () => [
    field({ name: "user", label: "User", autocomplete: "username", required: true, autofocus: true }),
    field({ name: "password", label: "Password", type: "password", autocomplete: "current-password", required: true }),
  ] },
  { method: "key", name: "API key", fields: () => [
    field({ name: "token", label: "Token of the API key", type: "password", autocomplete: "off", required: true, autofocus: true }),
  ] },
];

// Shows the page in `element`. `done` is called after a login.
export function render(element, done) {
  const ways = WAYS.filter((one) => session.login_methods.includes(one.method));
  if (!ways.length) return void showCertificate(element);
  let way = ways[0];
  const place = h("div", {});
  const choice = h("div", { class: "segmented", role: "group", "aria-label": "Log in with" });
  const draw = () => {
    choice.hidden = ways.length < 2;
    show(choice, ways.map((one) => h("button", { type: "button", "aria-pressed": String(one === way), onclick: () => { way = one; draw(); } }, one.name)));
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
  frame(element, choice, place);
  draw();
}

function showCertificate(element) {
  frame(element, h("p", {}, "This server accepts client certificates only. Install one in the browser and load the page again."));
}

function frame(element, ...children) {
  const brand = h("div", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }, "k"), h("span", {}, "kwire"));
  show(element, h("main", { id: "main", class: "alone" }, h("div", { class: "card login" }, brand, h("h1", {}, "Log in"), children)));
}
