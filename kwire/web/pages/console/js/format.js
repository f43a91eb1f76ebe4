// Numbers, sizes, times and durations as text, the same on all pages.
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// What stands for a value that is not known.
export const NONE = "–";

export const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

// 1234567 -> "1,234,567"
export function number(value) {
  return isMissing(value) ? NONE : whole.format(value);
}

// 1234567 -> "1.23 M". Four or fewer digits stay as they are.
export function short(value) {
  if (isMissing(value)) return NONE;
  const size = Math.abs(value);
  if (size < 100) return digits(value);
  if (size < 10_000) return whole.format(value);
  for (const [unit, factor] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= factor) return `${digits(value / factor)} ${unit}`;
  }
  return whole.format(value);
}

// 123456789 -> "118 MiB"
export function bytes(value) {
  if (isMissing(value)) return NONE;
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && index < UNITS.length - 1) {
    rest /= 1024;
    index += 1;
  }
  return `${index === 0 ? whole.format(rest) : digits(rest)} ${UNITS[index]}`;
}

// Three significant digits, without zeros at the end.
function digits(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

export const perSecond = (format) => (value) => `${format(value)}/s`;

// Seconds with a suitable unit: 0.00042 -> "0.42 ms", 75 -> "1 min 15 s"
export function seconds(value) {
  if (isMissing(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1000)} ms`;
  return duration(value * 1000);
}

// Milliseconds as the two largest units: 90061000 -> "1 d 1 h"
export function duration(ms) {
  if (isMissing(ms)) return NONE;
  const days = Math.floor(ms / DAY);
  const hours = Math.floor((ms % DAY) / HOUR);
  const minutes = Math.floor((ms % HOUR) / MINUTE);
  const rest = (ms % MINUTE) / SECOND;
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  if (minutes) return Math.floor(rest) ? `${minutes} min ${Math.floor(rest)} s` : `${minutes} min`;
  return `${rest >= 10 ? Math.floor(rest) : Math.round(rest * 10) / 10} s`;
}

const pad = (value, length = 2) => String(value).padStart(length, "0");

// Milliseconds since 1970 -> "2026-11-18 13:09:17", in the time zone of the browser.
export function time(ms, { milliseconds = false } = {}) {
  if (isMissing(ms) || ms < 0) return NONE;
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${clock(ms)}${milliseconds ? `.${pad(at.getMilliseconds(), 3)}` : ""}`;
}

// Milliseconds since 1970 -> "13:09:17"
export function clock(ms) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

// A time in the past, in milliseconds since 1970 -> "12 s ago", "5 min ago". Days and more are shown as a time.
export function ago(ms) {
  if (isMissing(ms)) return NONE;
  const passed = Date.now() - ms;
  if (passed < 2 * SECOND) return "just now";
  const unit = passed < MINUTE ? SECOND : passed < HOUR ? MINUTE : HOUR;
  return passed < DAY ? `${duration(Math.floor(passed / unit) * unit)} ago` : time(ms);
}

export function percent(share) {
  return isMissing(share) ? NONE : `${Math.round(share * 100)} %`;
}

// An error as a sentence: "the password is wrong" -> "The password is wrong". Names keep their spelling: "retention.ms must
// be a number", "orders: is full".
export function sentence(text) {
  return typeof text === "string" && /^[a-z]+[ ,]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
}

// count(1, "topic") -> "1 topic", count(2, "topic") -> "2 topics"
export function count(value, noun, nouns = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : nouns}`;
}
