// The path of the page decides what is shown: /console/topics/orders -> the page with the path "/topics/:topic".
const HOME = "/console";

const listeners = new Set();

// The address of a page of the console: url("/topics", name, "configs"). Segments are encoded, the first is a path.
export function url(path, ...segments) {
  const rest = segments.filter((one) => one !== undefined && one !== null && one !== "");
  return [HOME + (path === "/" ? "" : path), ...rest.map(encodeURIComponent)].join("/");
}

export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  for (const one of listeners) one();
}

// Changes the query of the address without drawing the page again. Empty values are removed.
export function setQuery(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text && `?${text}`));
}

// The page of the current path: {page, params, query}; page is undefined if no path matches.
export function match(pages) {
  const path = location.pathname.slice(HOME.length).replace(/\/+$/, "") || "/";
  const query = Object.fromEntries(new URLSearchParams(location.search));
  for (const page of pages) {
    const params = paramsOf(page.path, path);
    if (params) return { page, params, query, path };
  }
  return { page: undefined, params: {}, query, path };
}

// "/topics/:topic/:tab?" matches "/topics/orders" and "/topics/orders/configs".
function paramsOf(pattern, path) {
  const wanted = pattern.split("/").slice(1);
  const given = path.split("/").slice(1);
  if (given.length > wanted.length) return null;
  const params = {};
  for (const [index, one] of wanted.entries()) {
    const value = given[index];
    if (one.startsWith(":")) {
      const name = one.replace(/^:|\?$/g, "");
      if (value === undefined && !one.endsWith("?")) return null;
      if (value !== undefined) params[name] = decode(value);
    } else if (one !== value) return null;
  }
  return params;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Calls `listener` whenever the path changes. Links of the console do not load the document again.
export function onNavigate(listener) {
  listeners.add(listener);
  addEventListener("popstate", listener);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    const address = new URL(link.href);
    const isConsole = address.pathname === HOME || address.pathname.startsWith(`${HOME}/`);
    if (address.origin !== location.origin || !isConsole || link.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    if (address.href !== location.href) go(address.pathname + address.search);
  });
}
