// The tables of a queue beside its jobs.

import { at, get } from "./api.js";
import { actionButton } from "./dialogs.js";
import { ago, badge, bytes, duration, h, link, moment, number, replace, table } from "./dom.js";

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const grouped = (value) => (typeof value === "number" ? number(value) : plain(value));

/** A duration or a size in larger units. */
function inWords(name, value) {
  if (name.endsWith("_s") && value >= 60) return ` (${duration(value)})`;
  return name.endsWith("_bytes") && value >= 1024 ? ` (${bytes(value)})` : "";
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${text || "nothing"} is not a value: write a number, true, false, or JSON`);
  }
}

/** Some of the jobs that a worker runs, and since when. */
const heldJobs = (context, worker) =>
  h("ul", { class: "held" }, worker.jobs.map((job) => h("li", {}, h("a", { href: context.address("jobs", job.id), "data-link": true, title: job.id, "aria-label": `${job.kind} ${job.id}` }, job.kind), " ", ago(job.since))));

const VIEWS = {
  workers: {
    title: "Workers",
    intro: "Processes that work on the queue and were heard lately, idle ones too.",
    empty: "No workers were heard lately. Start one: bucketq work MODULE:WORKER",
    columns: (c) => [
      { title: "Name", cell: (w) => [w.name, " ", w.draining ? badge("draining", "wait") : w.running ? badge("working", "running") : badge("idle", "done")] },
      { title: "Runs", class: "number", cell: (w) => (w.running ? link(`${c.address("jobs")}?status=running&text=${encodeURIComponent(w.name)}`, `${w.running} of ${w.concurrency}`) : `0 of ${w.concurrency}`) },
      { title: "Jobs", cell: (w) => heldJobs(c, w) },
      { title: "Kinds", cell: (w) => h("span", { class: "tags" }, (w.kinds || []).map((kind) => h("span", { class: "tag" }, kind))) },
      { title: "Host", cell: (w) => w.host },
      { title: "Process", class: "number", cell: (w) => w.pid },
      { title: "Version", cell: (w) => w.version },
      { title: "Started", cell: (w) => ago(w.since) },
      { title: "Heartbeat", cell: (w) => ago(w.at) },
      { title: "", class: "actions", cell: (w) => !w.draining && actionButton(c, "Drain", { title: `Drain ${w.name}?`, about: w.name, text: "It claims no more jobs, ends those that it runs, and exits.", danger: true }, { action: "drain", name: w.id }) },
    ],
  },
  schedules: {
    title: "Schedules",
    intro: "Jobs that the queue pushes by itself.",
    columns: (c) => [
      { title: "Name", cell: (s) => [s.name, " ", s.paused && badge("paused", "wait")] },
      { title: "When", cell: (s) => (s.cron ? h("code", {}, `${s.cron} ${s.timezone}`) : `every ${duration(s.every_s)}`) },
      { title: "Next", cell: (s) => ago(s.next_at) },
      { title: "Kind", cell: (s) => s.kind },
      { title: "Payload", class: "cut", cell: (s) => h("code", {}, s.payload) },
      { title: "Missed runs", cell: (s) => s.missed },
      { title: "Last job", class: "id", cell: (s) => (s.last_job ? link(c.address("jobs", s.last_job), s.last_job) : "–") },
      {
        title: "",
        class: "actions",
        cell: (s) => [
          actionButton(c, "Run now", { title: `Run ${s.name} now?`, about: s.name, text: "Pushes its job. Due times stay as they are." }, { action: "run-schedule", name: s.name }),
          s.paused
            ? actionButton(c, "Resume", { title: `Resume ${s.name}?`, about: s.name, text: "What was due meanwhile never runs." }, { action: "resume-schedule", name: s.name })
            : actionButton(c, "Pause", { title: `Pause ${s.name}?`, about: s.name, text: "It pushes no more jobs until it is resumed." }, { action: "pause-schedule", name: s.name }),
        ],
      },
    ],
  },
  limits: {
    title: "Limits",
    intro: "How many jobs of a kind or group run at once, or start in a period.",
    columns: () => [
      { title: "Holds for", cell: (l) => l.target },
      { title: "Runs at most", class: "number", cell: (l) => number(l.running) },
      { title: "Starts at most", cell: (l) => (l.rate ? `${number(l.rate)} in ${duration(l.period_s)}` : "–") },
      { title: "Now", cell: (l) => limitNow(l) },
    ],
  },
  batches: {
    title: "Batches",
    intro: "Jobs that belong together; a job may be pushed when all of them have ended.",
    columns: (c) => [
      { title: "Batch", class: "id", cell: (b) => link(`${c.address("jobs")}?batch=${encodeURIComponent(b.id)}`, b.id) },
      { title: "Status", cell: (b) => badge(b.status, { open: "queued", closed: "running", cancelled: "dead" }[b.status] || "done") },
      { title: "Ended", cell: (b) => h("span", { class: "progress" }, b.jobs > 0 && h("progress", { value: b.jobs - b.open, max: b.jobs, "aria-label": "jobs that have ended" }), `${number(b.jobs - b.open)} of ${number(b.jobs)}`) },
      { title: "Completed", class: "number", cell: (b) => number(b.completed) },
      { title: "Dead", class: "number", cell: (b) => number(b.dead) },
      { title: "Cancelled", class: "number", cell: (b) => number(b.cancelled + b.expired) },
      { title: "At the end", cell: (b) => (b.callback ? link(c.address("jobs", b.callback), b.on_done || "job") : b.on_done || "–") },
      { title: "Opened", cell: (b) => ago(b.opened_at) },
      { title: "", class: "actions", cell: (b) => b.status === "open" && actionButton(c, "Close", { title: "Close this batch?", about: b.id, text: "No more jobs can be added. It is done when all its jobs have ended." }, { action: "close-batch", name: b.id }) },
    ],
  },
  consumers: {
    title: "Consumers",
    intro: "Names under which streams claim numbered batches of jobs.",
    columns: () => [
      { title: "Name", cell: (n) => n.name },
      { title: "Epoch", class: "number", cell: (n) => number(n.epoch) },
      { title: "Last batch", class: "number", cell: (n) => number(n.batch || 0) },
      { title: "Jobs in it", class: "number", cell: (n) => number(n.pending || 0) },
      { title: "Used", cell: (n) => ago(n.at) },
    ],
  },
  tokens: {
    title: "Tokens",
    intro: "What clients of brokers show. The tokens themselves are not kept.",
    empty: noTokens,
    columns: (c) => [
      { title: "Id", class: "id", cell: (t) => t.id },
      { title: "Name", cell: (t) => t.name },
      { title: "Rights", cell: (t) => h("span", { class: "tags" }, t.rights.map((right) => h("span", { class: "tag" }, right))) },
      { title: "Created", cell: (t) => ago(t.created_at) },
      { title: "Expires", cell: (t) => (t.expires_at ? ago(t.expires_at) : "never") },
      { title: "", class: "actions", cell: (t) => actionButton(c, "Revoke", { title: `Revoke token ${t.id}?`, about: t.id, text: "Clients that show it are refused from now on. Brokers ask for tokens even if none is left.", danger: true }, { action: "revoke-token", name: t.id }) },
    ],
  },
  settings: {
    title: "Settings",
    intro: "What all processes of the queue agree on.",
    columns: (c) => [
      { title: "Setting", cell: (s) => h("code", {}, s.name) },
      { title: "Value", cell: (s) => [h("b", {}, grouped(s.value)), inWords(s.name, s.value), " ", plain(s.value) !== plain(s.default) && badge("changed", "queued")] },
      { title: "Default", cell: (s) => grouped(s.default) },
      {
        title: "",
        class: "actions",
        cell: (s) =>
          actionButton(
            c,
            "Edit",
            { title: `Change ${s.name}`, about: s.name, text: "All processes of the queue obey the new value.", label: "Save", fields: [{ name: "value", label: "Value", value: plain(s.value) }], sends: ({ value }) => ({ settings: { [s.name]: parsed(value) } }) },
            { action: "configure" },
          ),
      },
    ],
  },
  audit: {
    title: "Audit",
    intro: "What operators did, the latest first.",
    empty: "Nothing was done yet.",
    columns: () => [
      { title: "When", cell: (a) => [moment(a.at), a.until && ` to ${moment(a.until)}`] },
      { title: "What", cell: (a) => badge(a.action, "queued") },
      { title: "To", class: "cut", cell: (a) => (a.about || []).join(", ") },
      { title: "Count", class: "number", cell: (a) => (a.count ? number(a.count) : "") },
      { title: "Who", cell: (a) => a.by },
    ],
  },
};

function limitNow(limit) {
  const parts = Object.entries(limit).filter(([name, value]) => !["target", "running", "rate", "period_s"].includes(name) && value !== null && value !== undefined);
  return parts.map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "string" ? moment(value) : number(value)}`).join(", ");
}

/** What brokers do if there are no tokens. It depends on a setting, which stays when the last one is revoked. */
async function noTokens(context) {
  const { rows } = await get(at(context.queue, "settings"));
  return rows.find((row) => row.name === "require_token")?.value
    ? "There are none, and brokers refuse every client: the setting require_token is on. Create one: bucketq token create URL"
    : "There are none: brokers accept every client that can reach them.";
}

export const tableTitle = (name) => VIEWS[name].title;
export const isTable = (name) => Object.hasOwn(VIEWS, name);

export async function tableView(context, name) {
  const view = VIEWS[name];
  const place = h("div");
  let shown = "";
  async function load() {
    const { rows } = await get(at(context.queue, name));
    const text = JSON.stringify(rows) + context.rights();
    const hasFocus = place.contains(document.activeElement);
    // Ages are written again, unless a person is about to use what is there.
    if (text === shown && hasFocus) return;
    shown = text;
    const empty = typeof view.empty === "function" && !rows.length ? await view.empty(context) : view.empty;
    replace(place, table(view.columns(context), rows, { caption: view.title, empty, rowAttributes: () => ({ class: "row" }) }));
  }
  replace(context.main, h("div", { class: "title" }, h("h1", {}, view.title)), h("p", { class: "muted" }, view.intro), place);
  await load();
  return { onStats: () => load().catch(() => {}), refresh: load };
}
