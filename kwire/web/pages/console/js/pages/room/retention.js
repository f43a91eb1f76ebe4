// The retention of a room: its fields, the body of the request, and the command.
import { line } from "../../command.js";
import { field } from "../../form.js";
import { number } from "../../format.js";

const HOURS_MAX = 1_000_000;
const MODES = [["", "default of the server"], ["time", "by age"], ["count", "by number of events"], ["hybrid", "by age and number"], ["infinite", "forever"]];

export const roomNameField = () =>
  field({ name: "name", label: "Name", required: true, maxlength: 249, pattern: "(?!__).*", wide: true, autofocus: true, hint: "Any text that does not start with __" });

// The fields for a retention as GET /rooms/{room} has it: {mode, hours, max_events}.
export function retentionFields({ mode = "", hours, max_events: count }) {
  const fields = {
    mode: field({ name: "mode", label: "Keep events", type: "select", options: mode ? MODES.slice(1) : MODES, value: mode, wide: true }),
    hours: field({ name: "hours", label: "Hours", type: "number", min: 0.01, max: HOURS_MAX, step: "any", value: hours ?? "", placeholder: "default" }),
    count: field({ name: "count", label: "Events", type: "number", min: 1, value: count ?? "", placeholder: "default", hint: "Number of newest events to keep" }),
  };
  // Only the limits of the mode are offered.
  const update = () => {
    const chosen = fields.mode.read();
    fields.hours.element.hidden = ["count", "infinite"].includes(chosen);
    fields.count.element.hidden = ["time", "infinite"].includes(chosen);
  };
  fields.mode.control.addEventListener("change", update);
  update();
  return Object.values(fields);
}

// The body of PUT /rooms/{room}. Limits that do not belong to the mode are left out.
export function retentionOf({ mode, hours, count }) {
  const body = {};
  if (mode) body.retention_mode = mode;
  if (hours !== null && mode !== "count" && mode !== "infinite") body.retention_hours = hours;
  if (count !== null && mode !== "time" && mode !== "infinite") body.max_events = count;
  return body;
}

export function retentionCommand(name, values) {
  const { retention_mode: mode, retention_hours: hours, max_events: count } = retentionOf(values);
  const limits = [hours !== undefined && ["--retention-hours", String(hours)], count !== undefined && ["--max-events", String(count)]];
  return line("kwire", "room", "create", name, mode && ["--retention-mode", mode], limits.filter(Boolean).flat());
}

// {mode: "hybrid", hours: 24, max_events: 100000} -> "24 h or 100,000 events"
export function retentionText({ mode, hours, max_events: count }) {
  if (mode === "infinite") return "forever";
  return [hours !== null && `${number(hours)} h`, count !== null && `${number(count)} events`].filter(Boolean).join(" or ");
}
