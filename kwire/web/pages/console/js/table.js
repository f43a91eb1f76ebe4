// Tables: sort, filter, and only the visible rows of a long table in the document.
import { h, setText, show } from "./dom.js";
import { emptyState, failure, skeleton } from "./elements.js";
import { count, isMissing, NONE } from "./format.js";
import { icon } from "./icons.js";
import { go, setQuery } from "./router.js";

// Above this number of rows, the document has only the rows that can be seen.
const VIRTUAL_FROM = 200;
// The height of a row of a long table: --row in base.css.
const ROW_PX = 40;
const ROWS_BEYOND_VIEW = 12;
// The widths of columns with a time, and with a time to the millisecond: neither is cut nor wrapped.
export const TIME_WIDTH = "12.5rem";
export const MILLISECONDS_WIDTH = "14.5rem";
const compare = new Intl.Collator("en", { numeric: true }).compare;

// dataTable({
//   label: "Topics", noun: "topic", nouns: "topics",
//   columns: [
//     {name: "Name", value: (row) => row.name, render: (row) => h("a", …)},
//     {name: "Size", value: (row) => row.size, text: bytes, kind: "number", hideBelow: 640},
//   ],
//   rows, key: (row) => row.name, href: (row) => url("/topics", row.name), filter: (row) => row.name, sort: "Name",
//   empty: emptyState(…), tools: [elements beside the filter],
// }) -> {element, setRows(rows), setFailure(error, retry)}
//
// `value` is what a column is sorted by and, with `text`, shows (NONE if it is missing); `render` makes an element instead. Columns with `kind`
// "number" are aligned to the right. `hideBelow` is a width in pixels: 640, 900 or 1200. `filter` returns the text in
// which the words of the filter have to occur. `sort` is the name of a column, with "-" in front for descending.
// `width` is a CSS width. On narrow screens the cells of a row with `isStacked` stand below each other. `isClipped` cuts
// long texts, so that each row is one line. Instead of `href`, `open(row)` is called when a row is chosen; `openName(row)`
// is then the accessible name of the button in its first cell.
export function dataTable({ label, noun = "row", nouns = `${noun}s`, columns, rows = null, key, href, filter, sort = "", empty, tools = [], view, queryName = "q", isStacked = false, isClipped = false, open, openName }) {
  let all = rows;
  let shown = [];
  let sorted = { name: sort.replace(/^-/, ""), isDescending: sort.startsWith("-") };
  let words = [];
  let first = -1;
  let last = -1;
  let frame = 0;

  const total = h("span", { class: "table-count", role: "status" });
  const find = filter && h("input", { type: "search", "data-filter": true, placeholder: "Filter", "aria-label": `Filter ${label}`, autocomplete: "off", spellcheck: "false" });
  const head = h("tr", {}, columns.map(headOf));
  const body = h("tbody", {});
  const table = h("table", { class: isStacked ? "data stacked" : "data", "aria-label": label }, h("colgroup", {}, columns.map((one) => h("col", { class: hideClass(one), style: one.width ? { width: one.width } : {} }))), h("thead", {}, head), body);
  const place = h("div", { class: "table-place" });
  const bar = (find || tools.length > 0) && h("div", { class: "table-bar" }, find && h("span", { class: "find" }, icon("search"), find, h("kbd", { "aria-hidden": "true" }, "/")), total, h("span", { class: "table-tools" }, tools));
  const element = h("div", { class: "table" }, bar, place);

  function headOf(column) {
    if (!column.value) return h("th", { scope: "col", class: cellClass(column) }, column.name || h("span", { class: "hidden" }, "Actions"));
    const button = h("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, column.name, icon("sort", 14));
    return h("th", { scope: "col", class: cellClass(column) }, button);
  }

  function sortBy(column) {
    const isDescending = sorted.name === column.name ? !sorted.isDescending : column.kind === "number";
    sorted = { name: column.name, isDescending };
    update();
  }

  // Chooses and sorts the rows, then draws them.
  function update() {
    if (all === null) return void show(place, skeleton());
    shown = words.length ? all.filter((row) => { const text = filter(row).toLowerCase(); return words.every((one) => text.includes(one)); }) : [...all];
    // A column of actions has no name and no value: rows cannot be sorted by it.
    const column = columns.find((one) => one.value && one.name === sorted.name);
    if (column) shown.sort(orderOf(column, sorted.isDescending));
    for (const [index, cell] of [...head.children].entries()) {
      const isSorted = columns[index] === column;
      if (columns[index].value) cell.setAttribute("aria-sort", isSorted ? (sorted.isDescending ? "descending" : "ascending") : "none");
    }
    setText(total, words.length ? `${shown.length.toLocaleString("en-US")} of ${count(all.length, noun, nouns)}` : count(all.length, noun, nouns));
    if (!all.length) return void show(place, empty ?? emptyState({ title: `No ${nouns}` }));
    if (!shown.length) return void show(place, emptyState({ icon: "search", title: "Nothing matches the filter" }));
    const isVirtual = shown.length > VIRTUAL_FROM;
    table.classList.toggle("virtual", isVirtual || isClipped);
    table.setAttribute("aria-rowcount", String(shown.length + 1));
    if (table.parentNode !== place) show(place, table);
    first = last = -1;
    draw();
    // The position of the table is known when it is in the document.
    if (isVirtual) schedule();
  }

  // Draws the rows that can be seen.
  function draw() {
    frame = 0;
    const isVirtual = shown.length > VIRTUAL_FROM;
    let from = 0;
    let to = shown.length;
    if (isVirtual) {
      const top = body.isConnected ? -body.getBoundingClientRect().top : 0;
      from = Math.max(0, Math.min(Math.floor(top / ROW_PX), shown.length) - ROWS_BEYOND_VIEW);
      to = Math.min(shown.length, from + Math.ceil(innerHeight / ROW_PX) + 2 * ROWS_BEYOND_VIEW);
    }
    if (from === first && to === last) return;
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : undefined;
    first = from;
    last = to;
    show(
      body,
      from > 0 && space(from),
      shown.slice(from, to).map((row, index) => rowOf(row, from + index)),
      to < shown.length && space(shown.length - to),
    );
    if (focused !== undefined) [...body.children].find((one) => one.dataset.key === focused)?.querySelector("a, button")?.focus({ preventScroll: true });
  }

  const space = (rowCount) => h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: columns.length, style: { height: `${rowCount * ROW_PX}px` } }));

  function rowOf(row, index) {
    const address = href?.(row);
    const cells = columns.map((column, number) => {
      const content = column.render ? column.render(row) : textOf(column, column.value(row));
      const isLink = number === 0 && address && !(content instanceof Node);
      if (number === 0 && open) return h("td", { class: cellClass(column) }, h("button", { type: "button", class: "quiet row-open", "aria-label": openName(row), onclick: () => open(row) }, content));
      return h("td", { class: cellClass(column) }, isLink ? h("a", { class: "row-link", href: address, title: content }, content) : content);
    });
    const line = h("tr", { "aria-rowindex": index + 2, "data-key": key ? key(row) : null, class: address || open ? "linked" : null }, cells);
    if (address || open) {
      line.addEventListener("click", (event) => {
        if (!event.defaultPrevented && !event.target.closest("a, button, input, label") && !getSelection().toString()) open ? open(row) : go(address);
      });
    }
    return line;
  }

  const schedule = () => (frame ||= requestAnimationFrame(draw));

  if (find) {
    const query = view?.query[queryName] ?? "";
    find.value = query;
    words = wordsOf(query);
    find.addEventListener("input", () => {
      words = wordsOf(find.value);
      if (view) setQuery({ [queryName]: find.value });
      update();
    });
    find.addEventListener("keydown", (event) => event.key === "Escape" && find.blur());
  }
  const watch = () => element.isConnected && schedule();
  addEventListener("scroll", watch, { passive: true, signal: view?.signal });
  addEventListener("resize", watch, { passive: true, signal: view?.signal });
  update();
  return {
    element,
    setRows(newRows) {
      all = newRows;
      update();
    },
    setFailure(error, retry) {
      setText(total, "");
      show(place, failure(error, retry));
    },
  };
}

const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const hideClass = ({ hideBelow }) => (hideBelow ? `hide-${hideBelow}` : "");
const cellClass = (column) => [column.kind === "number" ? "number" : "", column.kind === "actions" ? "cell-actions" : "", hideClass(column)].filter(Boolean).join(" ") || null;

function textOf({ text }, value) {
  if (isMissing(value)) return text ? NONE : "";
  return (text ?? String)(value);
}

// Rows without a value come last in both directions.
function orderOf({ value }, isDescending) {
  const sign = isDescending ? -1 : 1;
  return (one, other) => {
    const a = value(one);
    const b = value(other);
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * compare(String(a), String(b));
  };
}
