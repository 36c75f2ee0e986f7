// One job: its fields, what happened to it, its payload and result, and what can be done.

import { at, get } from "./api.js";
import { actionButton, priorityField } from "./dialogs.js";
import { ago, badge, bytes, duration, facts, h, link, moment, number, panel, progressBar, replace, statusOf } from "./dom.js";

const MOST = 500;
// The entries of a longer list are closed at first, so that a screen shows many of them.
const CROWDED = 20;

/** A number with more digits than a number of the browser has. */
class Digits {
  constructor(text) {
    this.text = text;
  }
}

export async function jobPage(context, id) {
  const base = `/q/${encodeURIComponent(context.queue)}`;
  let shown = "";

  async function load() {
    const job = await get(at(context.queue, "jobs", id));
    const text = JSON.stringify(job) + context.rights();
    if (text === shown) return;
    shown = text;
    const schedule = await scheduleOf(job);
    replace(
      context.main,
      h("p", { class: "path" }, link(`${base}/jobs`, "Jobs"), " / ", link(`${base}/jobs?kind=${encodeURIComponent(job.kind)}`, job.kind)),
      h("div", { class: "title" }, h("h1", { class: "id" }, job.id), statusOf(job), h("span", { class: "buttons" }, buttons(context, job))),
      job.progress && h("div", { class: "panel" }, progressBar(job.progress)),
      h("div", { class: "pair" }, panel("Job", jobFacts(base, job, schedule)), panel("Timeline", timeline(job))),
      bodies(job, (part) => at(context.queue, "jobs", job.id, part)),
    );
  }

  async function scheduleOf(job) {
    try {
      const { rows } = await get(at(context.queue, "schedules"));
      return rows.find((row) => row.last_job === job.id);
    } catch {
      return null;
    }
  }

  await load();
  let version = -1;
  return {
    onStats(document) {
      if (document.stats.version === version) return;
      version = document.stats.version;
      load().catch((problem) => {
        if (problem.status === 404) context.notify("The job has left the queue: it is in the archive, or is leaving for it.");
      });
    },
    refresh: load,
  };
}

/** A job of the archive. Nothing changes it, so it is loaded once. */
export async function archivedJob(context, id) {
  const ended = context.query.get("at");
  const query = ended ? `?at=${encodeURIComponent(ended)}` : "";
  const job = await get(at(context.queue, "archive", id) + query);
  const base = `/q/${encodeURIComponent(context.queue)}`;
  replace(
    context.main,
    h("p", { class: "path" }, link(`${base}/archive`, "Archive"), " / ", link(`${base}/archive?kind=${encodeURIComponent(job.kind)}`, job.kind)),
    h("div", { class: "title" }, h("h1", { class: "id" }, job.id), statusOf(job)),
    h("div", { class: "pair" }, panel("Job", jobFacts(base, job, null)), panel("Timeline", timeline(job))),
    bodies(job, (part) => at(context.queue, "archive", job.id, part) + query),
  );
  return {};
}

function bodies(job, addressOf) {
  return [
    panel("Payload", body(addressOf("payload"), job, "payload")),
    job.result && panel("Result", body(addressOf("result"), job, "result")),
    (job.errors || []).length > 0 && panel("Errors", errors(job)),
  ];
}

function buttons(context, job) {
  const isJson = job.payload && job.payload.form === "json";
  const again = {
    title: "Push again?",
    text: "Pushes a new job of the same kind with these values. This job stays as it is.",
    opens: true,
    fields: [
      isJson && { name: "payload", label: "Payload (JSON)", value: pretty(job.payload.text), lines: 8 },
      { name: "priority", label: "Priority (lower goes first)", value: job.priority, attributes: { type: "number", step: 1 } },
    ].filter(Boolean),
    sends: (values) => ({
      priority: Number(values.priority || 0),
      // Sent only if it was edited: numbers and keys keep their form.
      ...(isJson && values.payload.replaceAll("\r\n", "\n") !== pretty(job.payload.text) ? { payload: values.payload } : {}),
    }),
  };
  return [
    job.status === "dead" && actionButton(context, "Retry", { title: "Retry this job?", text: "Queues it again, with all its attempts." }, { action: "redrive", job: job.id }),
    ["queued", "running"].includes(job.status) &&
      !job.cancel_requested &&
      actionButton(context, "Cancel", { title: "Cancel this job?", text: job.status === "running" ? "Asks its worker to stop." : "It will not run.", danger: true }, { action: "cancel", job: job.id }),
    job.status === "queued" && actionButton(context, "Change priority", { title: "Change its priority?", ...priorityField(job.priority || 0) }, { action: "set-priority", job: job.id }),
    actionButton(context, "Push again", again, { action: "push", job: job.id }),
    job.status === "dead" && actionButton(context, "Purge", { title: "Purge this job?", text: "Moves it to the archive. It cannot be queued again.", danger: true }, { action: "purge", job: job.id }),
  ];
}

/** JSON with indentation, as the text has it: a parsed number may have lost digits. */
function pretty(text) {
  const value = JSON.parse(text);
  const printed = JSON.stringify(value, null, 2);
  return JSON.stringify(value) === text ? printed : text;
}

function jobFacts(base, job, schedule) {
  const jobs = (name, value) => link(`${base}/jobs?${name}=${encodeURIComponent(value)}`, value);
  const toJob = (name) => link(`${base}/jobs/${encodeURIComponent(name)}`, name);
  const most = job.max_attempts ? ` of ${job.max_attempts}` : "";
  return facts([
    ["Kind", jobs("kind", job.kind)],
    ["Attempts", `${job.attempt} (${job.failures || 0} failed, ${job.lost_leases || 0} lost${most})`],
    ["Snoozed", job.snoozes || ""],
    ["Priority", String(job.priority || 0)],
    ["Worker", job.worker],
    ["Group", job.group && jobs("group", job.group)],
    ["Tags", Object.entries(job.tags || {}).map(([name, value]) => [link(`${base}/jobs?tag=${encodeURIComponent(`${name}=${value}`)}`, h("span", { class: "tag" }, `${name}=${value}`)), " "])].map((v) => (v.length ? v : "")),
    ["Batch", job.batch_id && jobs("batch", job.batch_id)],
    ["Ends batch", job.done_batch && `${job.done_batch.id}: ${job.done_batch.completed || 0} of ${job.done_batch.jobs || 0} completed`],
    ["Waits for", (job.after || []).length ? job.after.map((name) => [toJob(name), " "]) : ""],
    ["Schedule", schedule && link(`${base}/schedules`, schedule.name)],
    ["Idempotency key", job.key],
    ["Unique name", job.unique],
    ["Replay of", job.replay_of],
    ["Lease", job.lease_s && duration(job.lease_s)],
    ["Place in the queue", number(job.seq)],
  ].map(([name, value]) => [name, Array.isArray(value) && !value.flat(Infinity).some(Boolean) ? "" : value]));
}

/** The line of an error that says what happened: of a traceback, it is the last one. */
function summary(error) {
  const lines = error.trim().split("\n");
  return lines[0].startsWith("Traceback") ? lines.pop() : lines[0];
}

function timeline(job) {
  const steps = [[job.pushed_at, "pushed", ""]];
  for (const failure of job.errors || []) steps.push([failure.at, failure.cause === "lost" ? "lease lost" : "failed", `attempt ${failure.attempt}${failure.worker ? ` on ${failure.worker}` : ""}: ${summary(failure.error)}`]);
  if (job.claimed_at) steps.push([job.claimed_at, "claimed", `attempt ${job.attempt}${job.worker ? ` by ${job.worker}` : ""}`]);
  if (job.heartbeat_at && job.status === "running") steps.push([job.heartbeat_at, "last heartbeat", ""]);
  if (job.finished_at) steps.push([job.finished_at, job.outcome || job.status, ""]);
  if (job.run_at && job.status === "queued") steps.push([job.run_at, "can run", ""]);
  if (job.expires_at && job.status === "queued") steps.push([job.expires_at, "expires unless it is claimed", ""]);
  steps.sort((a, b) => new Date(a[0]) - new Date(b[0]));
  return h("ol", { class: "timeline" }, steps.map(([time, what, more]) => h("li", {}, h("b", {}, what), " ", h("span", { class: "muted" }, moment(time), " · ", ago(time)), more && h("p", {}, more))));
}

function errors(job) {
  return [...job.errors].reverse().map((failure, place) =>
    h(
      "details",
      { open: place === 0 },
      h("summary", {}, badge(failure.cause === "lost" ? "lease lost" : "failed", "dead"), ` attempt ${failure.attempt}, `, ago(failure.at), failure.worker && ` on ${failure.worker}`),
      h("pre", {}, failure.error),
    ),
  );
}

function body(address, job, part) {
  const content = job[part];
  const download = h("a", { href: address, download: `${job.id}.${part}` }, "Download");
  if (!content) return h("p", { class: "empty" }, "There is none.");
  if (content.form === "lost") return h("p", { class: "note" }, content.error);
  if (content.form === "hex") return [h("pre", { class: "hex" }, hexdump(content.hex)), h("p", { class: "muted" }, `${number(content.bytes)} bytes${content.bytes * 2 > content.hex.length ? ", of which the first are shown" : ""}. `, download)];
  if (content.form === "large") {
    const place = h("div");
    const isShown = content.is_json && content.bytes < 4 * 1024 * 1024;
    const load = async (event) => {
      event.target.disabled = true;
      try {
        const answer = await fetch(address);
        const text = await answer.text();
        replace(place, answer.ok ? tree(text) : h("p", { class: "note" }, JSON.parse(text).error));
      } catch (problem) {
        replace(place, h("p", { class: "note" }, problem.message));
      }
    };
    return [h("p", {}, `${bytes(content.bytes)}, not loaded. `, isShown && h("button", { type: "button", class: "small", onclick: load }, "Show"), " ", download), place];
  }
  return tree(content.text);
}

function hexdump(hex) {
  const lines = [];
  for (let place = 0; place < hex.length; place += 32) {
    const pairs = hex.slice(place, place + 32).match(/../g) || [];
    const letters = pairs.map((pair) => (/^([2-6].|7[0-9a-e])$/.test(pair) ? String.fromCharCode(parseInt(pair, 16)) : "."));
    lines.push(`${(place / 2).toString(16).padStart(8, "0")}  ${pairs.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

/** JSON as a tree that can be folded, or as text. */
function tree(text) {
  let value;
  try {
    // The text of a number is kept if it has more digits than a number of the browser.
    value = JSON.parse(text, (_, v, source) => (typeof v === "number" && source && source.source !== String(v) ? new Digits(source.source) : v));
  } catch {
    return h("pre", {}, text);
  }
  if (value === null || typeof value !== "object" || value instanceof Digits) return h("pre", {}, text);
  const [folded, raw] = [h("div", { class: "tree" }, node(value, 0)), h("pre", { hidden: true }, text)];
  const choose = h("button", {
    type: "button",
    class: "small",
    onclick: () => {
      raw.hidden = !raw.hidden;
      folded.hidden = !folded.hidden;
      choose.textContent = raw.hidden ? "As text" : "As tree";
    },
  }, "As text");
  return [h("div", { class: "tree-tools" }, choose, h("button", { type: "button", class: "small", onclick: () => navigator.clipboard?.writeText(text) }, "Copy")), folded, raw];
}

function node(value, depth, isCrowded = false) {
  if (value === null || typeof value !== "object") return h("span", { class: `json-${value === null ? "null" : typeof value}` }, typeof value === "string" ? JSON.stringify(value) : String(value));
  if (value instanceof Digits) return h("span", { class: "json-number" }, value.text);
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  if (!entries.length) return h("span", {}, isList ? "[]" : "{}");
  const inside = h("ul", {});
  const show = () => {
    if (inside.childElementCount) return;
    for (const [name, each] of entries.slice(0, MOST)) inside.append(h("li", {}, h("span", { class: "json-key" }, isList ? name : JSON.stringify(name)), ": ", node(each, depth + 1, entries.length > CROWDED)));
    if (entries.length > MOST) inside.append(h("li", { class: "muted" }, `and ${number(entries.length - MOST)} more: see the text`));
  };
  const isOpen = depth < 3 && !isCrowded;
  if (isOpen) show();
  return h("details", { open: isOpen, ontoggle: show }, h("summary", {}, isList ? `[ ${number(entries.length)} ]` : `{ ${number(entries.length)} }`), inside);
}
