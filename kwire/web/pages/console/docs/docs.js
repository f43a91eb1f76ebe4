// The page /docs: shows openapi.json and sends requests to this server only.
const EVENTS_SHOWN_MAX = 500;
const ANSWER_CHARS_MAX = 20000;

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// --- is the node ready?

async function showReady() {
  const shown = byId("ready");
  try {
    const answer = await fetch("/readyz");
    const { status } = await answer.json();
    shown.textContent = status;
    shown.className = answer.ok ? "ready good" : "ready bad";
  } catch {
    shown.textContent = "no answer";
    shown.className = "ready bad";
  }
}

// --- a room, live

let source = null;
const roomPath = (below) => `/rooms/${encodeURIComponent(byId("room-name").value)}${below}`;

function setState(text, kind = "") {
  byId("room-state").textContent = text;
  byId("room-state").className = `state ${kind}`;
}

function addLine(line) {
  const list = byId("events");
  list.querySelector(".empty")?.remove();
  const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.append(line);
  while (list.children.length > EVENTS_SHOWN_MAX) list.firstElementChild.remove();
  if (isAtEnd) list.scrollTop = list.scrollHeight;
}

function showEvent(event) {
  const time = new Date(event.timestamp);
  addLine(el("li", { class: "new" },
    el("span", { class: "offset" }, String(event.offset)),
    el("span", { class: "what" }, el("b", {}, event.type), el("code", {}, JSON.stringify(event.data))),
    el("time", { datetime: event.timestamp }, time.toLocaleTimeString())));
}

function follow() {
  source?.close();
  byId("events").replaceChildren();
  byId("room-facts").textContent = "";
  const from = byId("room-from").value;
  const query = from === "" ? "" : `?from_offset=${from}`;
  setState("connecting…");
  source = new EventSource(roomPath(`/subscribe${query}`));
  byId("join-button").textContent = "Follow again";
  source.onopen = () => setState("live", "live");
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    showEvent(event);
    byId("room-facts").textContent = `newest offset ${event.offset}`;
  };
  source.addEventListener("caught_up", () => {
    setState("live, caught up", "live");
    addLine(el("li", { class: "mark-line" }, "caught up: the following events are new"));
  });
  source.addEventListener("gap", (message) => {
    const gap = JSON.parse(message.data);
    addLine(el("li", { class: "mark-line" }, `gap: offsets ${gap.from_offset} to ${gap.to_offset}`));
  });
  source.addEventListener("closed", (message) => {
    setState(`closed: ${JSON.parse(message.data).code ?? ""}`, "bad");
  });
  source.onerror = () => setState(source.readyState === EventSource.CLOSED ? "refused" : "connecting again…", "bad");
}

async function publish() {
  const line = byId("publish-answer");
  const tell = (text, kind) => { line.textContent = text; line.className = `answer-line ${kind}`; };
  let data;
  try {
    data = JSON.parse(byId("event-data").value);
  } catch (error) {
    tell(`The data is not JSON: ${error.message}`, "bad");
    return;
  }
  try {
    const answer = await fetch(roomPath("/events"), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ event_type: byId("event-type").value, data }),
    });
    const body = await answer.json();
    if (!answer.ok) tell(`${body.error.code}: ${body.error.message}`, "bad");
    else tell(`Stored at offset ${body.offset}; ${body.subscribers_notified} subscriber(s) notified.`, "good");
  } catch (error) {
    tell(String(error), "bad");
  }
}

// --- the description of the API

let api = null;

function resolved(schema) {
  let found = schema ?? {};
  for (let hops = 0; found.$ref && hops < 8; hops += 1) found = api.components.schemas[found.$ref.split("/").pop()];
  return found;
}

function typeName(schema) {
  if (schema.$ref) return typeName(resolved(schema));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return [...new Set(choices.map(typeName))].join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeName(schema.items ?? {})}`;
  return schema.title && schema.type === "object" ? schema.title : schema.type ?? "any JSON";
}

function fieldList(schema, depth = 0) {
  const found = resolved(schema);
  const choices = found.anyOf ?? found.oneOf;
  if (choices) {
    // A type and a list of the same type are shown once.
    const inner = (one) => (one.type === "array" ? one.items?.$ref : one.$ref);
    const shown = choices.filter((one, place) => !inner(one) || choices.findIndex((other) => inner(other) === inner(one)) === place)
      .map((one) => fieldList(one, depth)).filter(Boolean);
    const words = choices.some((one) => one.type === "array") ? [el("p", { class: "quiet" }, typeName(found))] : [];
    return shown.length ? el("div", {}, ...words, ...shown.flatMap((one, place) => (place ? [el("p", { class: "or" }, "or"), one] : [one]))) : null;
  }
  if (found.type === "array") return fieldList(found.items ?? {}, depth);
  if (!found.properties) return null;
  return el("ul", { class: "fields" }, ...Object.entries(found.properties).map(([name, field]) => {
    const inner = resolved(field);
    const about = field.description ?? (field.anyOf ?? []).map((one) => one.description).find(Boolean);
    return el("li", {},
      el("code", {}, name), " ", el("span", { class: "type" }, typeName(field)),
      (found.required ?? []).includes(name) ? el("span", { class: "must" }, " required") : null,
      about ? el("div", {}, plain(about)) : null,
      depth < 2 && (inner.properties || inner.type === "array") ? fieldList(field, depth + 1) : null);
  }));
}

// Backticks are the only Markdown that descriptions use.
function plain(text) {
  const parts = text.split("`");
  return el("span", {}, ...parts.map((part, index) => (index % 2 ? el("code", {}, part) : part)));
}

function example(schema, depth = 0) {
  const found = resolved(schema);
  if (found.const !== undefined) return found.const;
  if (found.enum) return found.enum[0];
  const choices = found.anyOf ?? found.oneOf;
  if (choices) return example(choices.find((one) => one.type !== "null") ?? {}, depth);
  switch (found.type) {
    case "object": {
      const made = {};
      if (depth < 4) {
        for (const [name, field] of Object.entries(found.properties ?? {})) {
          if ((found.required ?? []).includes(name)) made[name] = example(field, depth + 1);
        }
      }
      return made;
    }
    case "array": return [example(found.items ?? {}, depth + 1)];
    case "integer": case "number": return found.default ?? Math.max(found.minimum ?? 1, 1);
    case "boolean": return found.default ?? true;
    case "string": return found.default ?? "text";
    default: return { text: "Hello" };
  }
}

// A long path may wrap after a slash.
const breakable = (path) => path.split(/(?<=\/)/).flatMap((part) => [part, el("wbr")]);

const anchor = (method, path) => `${method}-${path.replace(/[^a-zA-Z0-9]+/g, "-").replace(/^-|-$/g, "")}`;

function responsesOf(operation) {
  return el("ul", { class: "fields" }, ...Object.entries(operation.responses).map(([status, response]) => {
    const types = Object.entries(response.content ?? {});
    return el("li", {},
      el("code", {}, status), " ", plain(response.description),
      ...types.map(([mediaType, { schema, "x-line": line }]) => el("div", {},
        el("span", { class: "type" }, mediaType + (line ? ", each line:" : "")),
        status === "4XX" || status === "503" ? null : fieldList(line ?? schema, 1))));
  }));
}

function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function tryForm(method, path, operation) {
  const parameters = operation.parameters ?? [];
  const inputs = new Map();
  const form = el("form", { class: "try" }, el("h3", {}, "Try it"));
  for (const parameter of parameters) {
    const choices = parameter.schema.enum;
    const input = choices
      ? el("select", {}, el("option", { value: "" }, ""), ...choices.map((one) => el("option", { value: one }, String(one))))
      : el("input", { autocomplete: "off", spellcheck: "false", placeholder: String(parameter.schema.default ?? "") });
    if (parameter.required) {
      input.required = true;
      if (!choices) input.value = { room: "lobby", topic: "orders", group: "workers", offset: "0", partition: "0" }[parameter.name] ?? "";
    }
    inputs.set(parameter, input);
    form.append(el("label", {}, `${parameter.name} (${parameter.in})`, input));
  }
  const bodies = Object.entries(operation.requestBody?.content ?? {});
  let mediaType = null;
  let body = null;
  if (bodies.length) {
    const fill = () => {
      const { schema, "x-line": line } = operation.requestBody.content[mediaType.value];
      body.value = line ? `${JSON.stringify(example(line))}\n` : JSON.stringify(example(schema), null, 2);
    };
    mediaType = el("select", { onchange: () => { fill(); preview(); } }, ...bodies.map(([name]) => el("option", {}, name)));
    body = el("textarea", { rows: 6, spellcheck: "false" });
    form.append(el("label", {}, "Body ", mediaType), el("label", {}, el("span", { class: "hidden" }, "Body"), body));
    fill();
  }
  const command = el("pre", { "aria-label": "As a curl command" });
  const status = el("div", { class: "status", role: "status" });
  const answer = el("pre", { "aria-label": "Answer" });
  answer.hidden = true;
  const stop = el("button", { type: "button", onclick: () => running?.abort() }, "Stop");
  stop.hidden = true;
  let running = null;

  const url = () => {
    let filled = path;
    const query = new URLSearchParams();
    for (const [parameter, input] of inputs) {
      if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value !== "") query.set(parameter.name, input.value);
    }
    return query.size ? `${filled}?${query}` : filled;
  };
  function preview() {
    const parts = ["curl"];
    if (operation["x-streaming"]) parts.push("-N");
    if (method !== "get") parts.push("-X", method.toUpperCase());
    parts.push(shell(location.origin + url()));
    if (body?.value.trim()) parts.push("\\\n  -H", shell(`Content-Type: ${mediaType.value}`), "\\\n  --data-binary", shell(body.value));
    command.textContent = parts.join(" ");
  }
  async function send(event) {
    event.preventDefault();
    running?.abort();
    running = new AbortController();
    stop.hidden = !operation["x-streaming"];
    status.textContent = "…";
    status.className = "status";
    const started = performance.now();
    try {
      const hasBody = body?.value.trim();
      const got = await fetch(url(), {
        method: method.toUpperCase(),
        headers: hasBody ? { "Content-Type": mediaType.value } : {},
        body: hasBody ? body.value : undefined,
        signal: running.signal,
      });
      status.textContent = `${got.status} ${got.statusText} · ${(performance.now() - started).toFixed(1)} ms · ${got.headers.get("content-type") ?? "no body"}`;
      status.className = `status ${got.ok ? "good" : "bad"}`;
      answer.hidden = false;
      await show(got);
    } catch (error) {
      if (error.name !== "AbortError") {
        status.textContent = String(error);
        status.className = "status bad";
      }
    }
    stop.hidden = true;
  }
  async function show(got) {
    if ((got.headers.get("content-type") ?? "").startsWith("application/json")) {
      const text = await got.text();
      // Only small answers are reformatted; JSON.parse would change large numbers.
      answer.textContent = (text.length > ANSWER_CHARS_MAX || /\d{16}/.test(text) ? text : JSON.stringify(JSON.parse(text), null, 2)).slice(0, ANSWER_CHARS_MAX);
      return;
    }
    answer.textContent = "";
    const reader = got.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
      answer.textContent = (answer.textContent + part.value).slice(-ANSWER_CHARS_MAX);
      answer.scrollTop = answer.scrollHeight;
    }
  }
  form.addEventListener("submit", send);
  form.addEventListener("input", preview);
  form.append(el("div", { class: "buttons" }, el("button", { class: "primary" }, "Send"), stop), command, status, answer);
  preview();
  return form;
}

function detailOf(method, path, operation) {
  const words = el("div");
  for (const paragraph of (operation.description ?? "").split("\n\n").filter(Boolean)) words.append(el("p", {}, plain(paragraph)));
  const parameters = operation.parameters ?? [];
  if (parameters.length) {
    words.append(el("h3", {}, "Parameters"), el("ul", { class: "fields" }, ...parameters.map((one) => el("li", {},
      el("code", {}, one.name), " ", el("span", { class: "type" }, `${one.in}, ${typeName(one.schema)}`),
      one.schema.default !== undefined ? el("span", { class: "type" }, `, ${JSON.stringify(one.schema.default)} if left out`) : null,
      one.description ?? one.schema.description ? el("div", {}, plain(one.description ?? one.schema.description)) : null))));
  }
  for (const [mediaType, { schema, "x-line": line }] of Object.entries(operation.requestBody?.content ?? {})) {
    words.append(el("h3", {}, `Body: ${mediaType}${line ? ", each line" : ""}`), fieldList(line ?? schema) ?? plain(typeName(schema)));
  }
  words.append(el("h3", {}, "Answers"), responsesOf(operation));
  return el("div", { class: "detail" }, words, tryForm(method, path, operation));
}

function operationCard(method, path, operation) {
  const card = el("details", { class: "operation", id: anchor(method, path) },
    el("summary", {},
      el("span", { class: `method ${method}` }, method),
      el("span", { class: "path" }, path),
      el("span", { class: "about" }, operation.summary ?? "")));
  card.dataset.text = `${method} ${path} ${operation.summary}`.toLowerCase();
  // Built when it is first opened: there are many.
  card.addEventListener("toggle", () => {
    if (card.open && !card.querySelector(".detail")) card.append(detailOf(method, path, operation));
  });
  return card;
}

function showApi() {
  byId("version").textContent = api.info.version;
  const nav = byId("nav");
  const all = byId("operations");
  all.replaceChildren();
  for (const { name, "x-displayName": title, description } of api.tags) {
    const cards = [];
    const links = [];
    for (const [path, operations] of Object.entries(api.paths).sort(([one], [other]) => (one < other ? -1 : 1))) {
      for (const [method, operation] of Object.entries(operations)) {
        if (operation.tags[0] !== name) continue;
        const card = operationCard(method, path, operation);
        cards.push(card);
        const link = el("a", { href: `#${card.id}`, onclick: () => { card.open = true; } },
          el("span", { class: `method ${method}` }, method), el("span", { class: "path" }, ...breakable(path)));
        link.dataset.text = card.dataset.text;
        links.push(link);
      }
    }
    all.append(el("section", { class: "group" }, el("div", { class: "tag" }, el("h2", {}, title), el("p", {}, description)), ...cards));
    nav.append(el("section", { class: "group" }, el("h2", {}, title), ...links));
  }
  const aimed = location.hash && byId(location.hash.slice(1));
  if (aimed) {
    aimed.open = true;
    aimed.scrollIntoView();
  }
}

function find() {
  const wanted = byId("find").value.trim().toLowerCase();
  for (const one of document.querySelectorAll("[data-text]")) one.hidden = !one.dataset.text.includes(wanted);
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector("[data-text]:not([hidden])");
}

byId("join").addEventListener("submit", (event) => { event.preventDefault(); follow(); });
byId("publish").addEventListener("submit", (event) => { event.preventDefault(); publish(); });
byId("find").addEventListener("input", find);
showReady();
setInterval(showReady, 10000);
fetch("/openapi.json")
  .then((answer) => answer.json())
  .then((document) => { api = document; showApi(); })
  .catch((error) => { byId("operations").textContent = `The description could not be loaded: ${error}`; });
