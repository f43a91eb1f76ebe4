// Builds elements. Text becomes text nodes, never markup, so data of clients cannot inject anything.
const SVG = "http://www.w3.org/2000/svg";

// h("button", { class: "primary", onclick: save, disabled: false }, "Save") -> HTMLButtonElement.
// null, undefined and false leave out an attribute or a child. `style` is an object of CSS properties.
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

// The same for elements of an SVG image.
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// Replaces the content of an element.
export function show(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

// Sets the text of an element if it has changed. Screen readers announce a live region only then.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let count = 0;
// An id that no other element has.
export function newId(prefix = "id") {
  count += 1;
  return `${prefix}-${count}`;
}
