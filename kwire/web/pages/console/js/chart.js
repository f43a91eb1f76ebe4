// Line charts over time, drawn as SVG.
import { h, setText, show, svg } from "./dom.js";
import { clock } from "./format.js";

const LEFT = 60;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 22;
const TICK_PX = 110;
const STEPS = [1, 2, 2.5, 5, 10];

// lineChart({title: "Traffic", series: [{name: "In"}, {name: "Out"}], format: bytes}) -> {element, update(times, values)}
// `times` are milliseconds since 1970, `values` one array per series; null is a gap. `binary` chooses axis values in
// powers of 1,024; the axis ends at `least` or above, and `axis` formats its values. The time axis is at most `windowMs`
// long. The legend shows the newest values, or those under the pointer; left and right move there by key.
export function lineChart({ title, series, format, height = 160, binary = false, least = 0, windowMs = 0, axis = format, about = "" }) {
  let times = [];
  let values = series.map(() => []);
  let width = 0;
  let at = null;
  const image = svg("svg", { class: "chart-image", height, role: "img", tabindex: "0", "aria-label": title });
  const marker = svg("g", { class: "chart-marker" });
  const legend = series.map(({ name }, index) => {
    const value = h("b", {});
    return { value, element: h("span", { class: `legend c${index + 1}` }, h("i", {}), series.length > 1 ? h("span", {}, name) : null, value) };
  });
  const when = h("span", { class: "chart-when" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, h("span", { class: "chart-title" }, title), about && h("span", { class: "about" }, about), h("span", { class: "legends" }, legend.map((one) => one.element))), h("div", { class: "chart-place" }, image, when));

  const start = () => Math.max(times[0], windowMs ? times.at(-1) - windowMs : 0);
  const x = (time) => LEFT + ((time - start()) / (times.at(-1) - start() || 1)) * (width - LEFT - RIGHT);
  const known = () => values.flat().filter((one) => one !== null);
  const top = () => Math.max(least, ceiling(Math.max(0, ...known()), binary));
  const yOf = (max) => (value) => height - BOTTOM - (value / max) * (height - TOP - BOTTOM);

  function draw() {
    if (!width) return;
    image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const max = top();
    const y = yOf(max);
    const grid = [0, 0.5, 1].map((share) => {
      const at = Math.round(y(max * share)) + 0.5;
      return [svg("line", { class: "grid", x1: LEFT, x2: width, y1: at, y2: at }), svg("text", { class: "axis", x: LEFT - 8, y: at + 4, "text-anchor": "end" }, share > 0 ? axis(max * share) : "0")];
    });
    const isEmpty = times.length < 2;
    const note = isEmpty ? "Collecting samples…" : known().length === 0 ? "Nothing in this time" : "";
    show(
      image,
      grid.flat(),
      note && svg("text", { class: "axis", x: (width + LEFT) / 2, y: y(max / 4), "text-anchor": "middle" }, note),
      !isEmpty && timeLabels(),
      !isEmpty && values.map((one, index) => lineOf(one, y, index)),
      marker,
    );
    mark();
  }

  function timeLabels() {
    const tickCount = Math.max(2, Math.min(6, Math.floor((width - LEFT) / TICK_PX)));
    return Array.from({ length: tickCount }, (_, index) => {
      const time = start() + ((times.at(-1) - start()) * index) / (tickCount - 1);
      const anchor = index === 0 ? "start" : index === tickCount - 1 ? "end" : "middle";
      return svg("text", { class: "axis", x: x(time), y: height - 6, "text-anchor": anchor }, clock(time));
    });
  }

  function lineOf(points, y, index) {
    let path = "";
    let isDrawing = false;
    for (const [number, value] of points.entries()) {
      if (value === null) isDrawing = false;
      else {
        path += `${isDrawing ? "L" : "M"}${x(times[number]).toFixed(1)} ${y(value).toFixed(1)}`;
        isDrawing = true;
      }
    }
    const hasGap = points.includes(null);
    const area = index === 0 && !hasGap && path && `${path}L${x(times.at(-1)).toFixed(1)} ${y(0)}L${x(times[0]).toFixed(1)} ${y(0)}Z`;
    return [area && svg("path", { class: `area c${index + 1}`, d: area }), svg("path", { class: `line c${index + 1}`, d: path })];
  }

  // Shows the values at the pointer, or the newest.
  function mark() {
    const index = at ?? times.length - 1;
    const y = yOf(top());
    for (const [number, { value }] of legend.entries()) setText(value, format(values[number][index] ?? null));
    setText(when, at === null || !times.length ? "" : clock(times[index]));
    show(
      marker,
      at !== null && times.length > 1 && [
        svg("line", { class: "cursor", x1: x(times[index]), x2: x(times[index]), y1: TOP, y2: height - BOTTOM }),
        values.map((one, number) => one[index] !== null && svg("circle", { class: `dot c${number + 1}`, cx: x(times[index]), cy: y(one[index]), r: 3.5 })),
      ],
    );
    const newest = series.map(({ name }, number) => `${name} ${format(values[number].at(-1) ?? null)}`).join(", ");
    image.setAttribute("aria-label", `${title}: ${newest}`);
  }

  image.addEventListener("pointermove", (event) => {
    if (times.length < 2) return;
    const share = (event.clientX - image.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
    const wanted = start() + share * (times.at(-1) - start());
    at = nearest(times, wanted);
    mark();
  });
  const end = () => {
    at = null;
    mark();
  };
  image.addEventListener("pointerleave", end);
  image.addEventListener("blur", end);
  image.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !times.length) return;
    event.preventDefault();
    at = Math.max(0, Math.min(times.length - 1, (at ?? times.length - 1) + step));
    mark();
  });
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    draw();
  }).observe(image.parentNode ?? element);

  return {
    element,
    update(newTimes, newValues) {
      if (at !== null) at = Math.max(0, Math.min(newTimes.length - 1, at + newTimes.length - times.length));
      times = newTimes;
      values = newValues;
      draw();
    },
  };
}

function nearest(times, wanted) {
  let low = 0;
  let high = times.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] < wanted) low = middle;
    else high = middle;
  }
  return wanted - times[low] < times[high] - wanted ? low : high;
}

// The smallest round number that is not below `value`.
function ceiling(value, binary) {
  if (value <= 0) return 1;
  const base = binary ? 1024 ** Math.max(1, Math.floor(Math.log(value) / Math.log(1024))) : 1;
  const scaled = value / base;
  const power = 10 ** Math.floor(Math.log10(scaled));
  return STEPS.map((one) => one * power).find((one) => one >= scaled - 1e-12) * base;
}
