// Elements and texts. All text becomes text nodes, so nothing from a queue is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href" && !String(value).startsWith("/") && !String(value).startsWith("#")) continue;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Makes an element: h("p", {class: "x"}, "text", other). */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  element.textContent = "";
  append(element, children);
}

/** A link within the page, which changes the view without loading it again. */
export const link = (href, ...children) => h("a", { href, "data-link": true }, ...children);

const whole = new Intl.NumberFormat("en");
export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function bytes(count) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (count < 1024) return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} GiB`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return pairOf(s, 60, "m", 1, "s");
  if (s < 86400) return pairOf(s, 3600, "h", 60, "m");
  return pairOf(s, 86400, "d", 3600, "h");
}

function pairOf(seconds, large, unit, small, rest) {
  const left = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${unit}${left ? ` ${left} ${rest}` : ""}`;
}

const pad = (value) => String(value).padStart(2, "0");

export function clock(date, withSeconds = true) {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}${withSeconds ? `:${pad(date.getSeconds())}` : ""}`;
}

export function moment(text) {
  if (!text) return "–";
  const date = new Date(text);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(date)}`;
}

/** A time as the field of a form has it, in the time zone of the browser. */
export const local = (text) => moment(text).slice(0, 16).replace(" ", "T");

/** How long ago a time was, or when it will be; the exact time is its title. */
export function ago(text) {
  if (!text) return "–";
  const seconds = (Date.now() - new Date(text).getTime()) / 1000;
  const shown = Math.abs(seconds) < 1 ? "now" : seconds < 0 ? `in ${short(-seconds)}` : `${short(seconds)} ago`;
  return h("time", { datetime: text, title: moment(text) }, shown);
}

function short(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const BADGES = { queued: "queued", running: "running", dead: "dead", done: "done" };

export function badge(text, look = BADGES[text] || "done") {
  return h("span", { class: `badge ${look}` }, text);
}

export function statusOf(job) {
  const marks = [badge(job.outcome && job.status === "done" ? job.outcome : job.status, BADGES[job.status])];
  if (job.is_held) marks.push(badge("held", "wait"));
  else if (job.status === "queued" && job.run_at && new Date(job.run_at) > new Date()) marks.push(badge("delayed", "wait"));
  if (job.cancel_requested && job.status === "running") marks.push(badge("stopping", "wait"));
  return h("span", { class: "badges" }, marks);
}

export function progressBar(progress) {
  if (!progress) return null;
  const { done, total, note } = progress;
  const label = total ? `${number(done)} of ${number(total)} ${note || ""}` : `${number(done)} ${note || ""}`;
  if (!total) return h("span", { class: "progress" }, label);
  return h("span", { class: "progress" }, h("progress", { value: done, max: total, "aria-label": label }), label);
}

const NOTHING = ["", "–"];

/** A cell; `look` may be "count", of which a zero says nothing. Several parts become one element, because a phone shows a title beside it. */
function cellOf({ title, cell, class: look }, row) {
  const content = cell(row);
  const made = h("td", { class: look, "data-title": title }, title && Array.isArray(content) ? h("span", {}, content) : content);
  if (NOTHING.includes(made.textContent) || (made.textContent === "0" && made.classList.contains("count"))) made.classList.add("nothing");
  return made;
}

/** A table; `columns` are {title, cell(row), class}. On a phone each row becomes a card of what is not empty. */
export function table(columns, rows, { caption, empty, rowAttributes } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty || "There are none.");
  const head = h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.title || h("span", { class: "unseen" }, "Actions"))));
  const body = rows.map((row, place) => h("tr", rowAttributes ? rowAttributes(row, place) : {}, columns.map((c) => cellOf(c, row))));
  return h("div", { class: "scroll" }, h("table", {}, caption && h("caption", { class: "unseen" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

export function facts(pairs, look = "") {
  const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "");
  return h("dl", { class: `facts ${look}` }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export const panel = (title, ...children) => h("section", { class: "panel" }, h("h2", {}, title), ...children);
