// Formats numbers and times for people, but only live ones: figures of the analysis come as text from the server.

const NUMBERS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SCALES = {
  ns: [[1e9, " s"], [1e6, " ms"], [1e3, " us"], [1, " ns"]],
  bytes: [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]],
  per_s: [[1, "/s"]],
};

/** Returns at most three significant digits with a unit that fits: 12300000 ns is "12.3 ms"; "–" for an unknown value. */
export function brief(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const steps = SCALES[unit] ?? [[1, unit && ` ${unit}`]];
  const [size, suffix] = steps.find(([step]) => Math.abs(value) >= step) ?? steps.at(-1);
  return digits(value / size) + suffix;
}

/** Returns the ticks of one axis as text, all in the unit of the largest. */
export function ticks(values, unit) {
  const steps = SCALES[unit] ?? [[1, ""]];
  const most = Math.max(...values.map(Math.abs));
  const [size, suffix] = steps.find(([step]) => most >= step) ?? steps.at(-1);
  return values.map((value) => (value === 0 ? "0" : `${Number((value / size).toPrecision(4)).toLocaleString("en-US")}${suffix}`));
}

function digits(value) {
  return Math.abs(value) >= 1000 ? WHOLE.format(value) : NUMBERS.format(value);
}

/** Returns "40 s", "12 min" or "2 h 5 min". */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function day(seconds) {
  return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

/** Shows the times below an element in the zone of the browser, like those that scripts show. */
export function localTimes(below) {
  for (const time of below.querySelectorAll("time")) time.textContent = day(Date.parse(time.dateTime) / 1000);
}

let skew_s = 0;

/** Sets the clock of the server, which may differ from the browser's. */
export function setNow(server_s) {
  skew_s = server_s - Date.now() / 1000;
}

/** Returns the seconds since a moment by the server's clock. */
export const since = (moment_s) => Date.now() / 1000 + skew_s - moment_s;

/** Returns an element with text and children; names from files never become markup. */
export function make(tag, about = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "className") element.className = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const at = (id) => document.getElementById(id);
