// The overview of a queue: what it counts now and counted before, its kinds, and its broker.

import { at, get } from "./api.js";
import { chart } from "./charts.js";
import { actionButton } from "./dialogs.js";
import { ago, badge, bytes, duration, facts, h, link, number, panel, replace, table } from "./dom.js";

const SPANS = [["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];
const STATUSES = ["queued", "running", "done", "dead"];

const total = (stats, status) => Object.values(stats.counts).reduce((sum, by) => sum + (by[status] || 0), 0);

function perSecond(sample, before) {
  if (!before || sample[0] <= before[0]) return 0;
  return Math.max(0, ((sample[6] - before[6]) * 1000) / (sample[0] - before[0]));
}

export async function overview(context) {
  const base = `/q/${encodeURIComponent(context.queue)}`;
  const first = await get(`${at(context.queue)}/stats`);
  let samples = first.samples;
  let span = SPANS.find(([, s]) => String(s) === context.query.get("span"))?.[1] || 600;

  const counts = chart("Jobs by status", [
    { name: "waiting", look: "queued", value: (s) => s[1] },
    { name: "running", look: "running", value: (s) => s[2] },
    { name: "dead", look: "dead", value: (s) => s[4] },
  ]);
  const oldest = chart("Age of the oldest waiting job", [{ name: "", look: "wait", value: (s) => s[5] }], duration);
  const commits = chart("Commits per second", [{ name: "", look: "running", value: perSecond }], (v) => (v < 10 ? v.toFixed(1) : number(Math.round(v))));
  const charts = [counts, oldest, commits];
  const [cards, notes, kinds, broker] = [h("div", { class: "cards" }), h("div"), h("div"), h("div")];
  const redraw = () => charts.forEach((each) => each.draw(samples, span));
  const spans = h(
    "div",
    { class: "choice", role: "group", "aria-label": "Time shown" },
    SPANS.map(([name, seconds]) =>
      h("button", {
        type: "button",
        "aria-pressed": seconds === span ? "true" : "false",
        onclick: (event) => {
          span = seconds;
          spans.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === event.target)));
          context.keep({ span: seconds === 600 ? "" : String(seconds) });
          redraw();
        },
      }, name),
    ),
  );

  function show(stats) {
    if (!stats) return;
    const jobs = (status) => `${base}/jobs?status=${status}`;
    const card = (label, value, look, href, note) =>
      h("div", { class: `card ${look}` }, h("span", { class: "label" }, label), h("strong", {}, href ? link(href, value) : value), h("small", {}, note || " "));
    const held = Object.values(stats.held || {}).reduce((sum, n) => sum + n, 0);
    const latest = samples.length > 1 ? perSecond(samples[samples.length - 1], samples[samples.length - 2]) : 0;
    replace(
      cards,
      card("Waiting", number(total(stats, "queued")), "queued", jobs("queued"), held ? `${number(held)} held for others` : ""),
      card("Running", number(total(stats, "running")), "running", jobs("running")),
      card("Dead", number(total(stats, "dead")), "dead", jobs("dead"), total(stats, "dead") ? "failed too often" : ""),
      card("Finished", number(total(stats, "done")), "done", jobs("done"), "until they are archived"),
      card("Oldest waiting", duration(stats.oldest_queued_s), "wait"),
      card("Commits", `${latest.toFixed(1)}/s`, "done", null, `version ${number(stats.version)}`),
    );
    replace(notes, noteTexts(stats).map((text) => h("p", { class: "note" }, text)));
    replace(kinds, kindTable(stats));
    replace(broker, brokerFacts(stats));
  }

  function kindTable(stats) {
    const rows = Object.entries(stats.counts).sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const columns = [
      { title: "Kind", cell: ([kind]) => [link(`${base}/jobs?kind=${encodeURIComponent(kind)}`, kind), " ", (stats.paused || stats.paused_kinds.includes(kind)) && badge("paused", "wait")] },
      ...STATUSES.map((status) => ({
        title: status === "queued" ? "Waiting" : status[0].toUpperCase() + status.slice(1),
        class: "number",
        cell: ([kind, by]) => (by[status] ? link(`${base}/jobs?status=${status}&kind=${encodeURIComponent(kind)}`, number(by[status])) : "0"),
      })),
      { title: "", class: "actions", cell: ([kind]) => pauseButton(stats, kind) },
    ];
    return table(columns, rows, { caption: "Jobs by kind and status", empty: "There are no jobs. Push one: bucketq push URL KIND PAYLOAD" });
  }

  function pauseButton(stats, kind) {
    return stats.paused_kinds.includes(kind)
      ? actionButton(context, "Resume", { title: `Resume ${kind}?`, about: kind, text: "Workers get its jobs again." }, { action: "resume", kind })
      : actionButton(context, "Pause", { title: `Pause ${kind}?`, about: kind, text: "No more jobs of this kind are handed out until it is resumed. Running jobs go on." }, { action: "pause", kind });
  }

  const all = h("span", { class: "buttons" });
  const showAll = (stats) =>
    replace(
      all,
      stats && stats.paused
        ? actionButton(context, "Resume queue", { title: "Resume the queue?", text: "Undoes every pause." }, { action: "resume" })
        : actionButton(context, "Pause queue", { title: "Pause the queue?", text: "No jobs are handed out until it is resumed. Running jobs go on.", danger: true }, { action: "pause" }),
    );

  replace(
    context.main,
    h("div", { class: "title" }, h("h1", {}, "Overview"), spans, all),
    cards,
    notes,
    h("div", { class: "panel" }, counts.element),
    h("div", { class: "pair" }, h("div", { class: "panel" }, oldest.element), h("div", { class: "panel" }, commits.element)),
    h("div", { class: "pair wide-first" }, panel("Kinds", kinds), panel("Broker and storage", broker)),
  );
  show(first.stats);
  showAll(first.stats);
  redraw();
  let shownRights = "";
  return {
    onStats(document) {
      const known = samples.length ? samples[samples.length - 1][0] : 0;
      samples = [...samples, ...document.samples.filter((s) => s[0] > known)].slice(-3000);
      show(document.stats);
      const rights = `${context.rights()} ${document.stats.paused}`;
      if (rights !== shownRights) showAll(document.stats);
      shownRights = rights;
      redraw();
    },
  };
}

function noteTexts(stats) {
  const texts = [];
  if (stats.paused) texts.push("The queue is paused: no jobs are handed out.");
  for (const limit of stats.limited || []) texts.push(`The limit of ${limit.target} lets no more jobs start now.`);
  const idle = Object.entries(stats.counts)
    .map(([kind, by]) => [kind, (by.queued || 0) - ((stats.held || {})[kind] || 0), by.running])
    .filter(([kind, waiting, running]) => waiting > 0 && !running && !stats.paused && !stats.paused_kinds.includes(kind))
    .map(([kind, waiting]) => `${kind} (${number(waiting)})`);
  const named = idle.slice(0, 10).join(", ") + (idle.length > 10 ? ` and ${number(idle.length - 10)} more` : "");
  if (idle.length) texts.push(`Waiting with none of their kind running: ${named}. Unless they are delayed, check that a worker has a handler for them.`);
  return texts.slice(0, 8);
}

function brokerFacts(stats) {
  const broker = stats.broker && stats.broker.address ? stats.broker : null;
  return facts([
    ["Leader", broker ? broker.address : "none: processes write the object themselves"],
    ["Leads since", broker && ago(broker.since)],
    ["Host", broker && (broker.host || "").split("/")[0]],
    ["Epoch", stats.broker && `${number(stats.broker.epoch)} (one more at each takeover)`],
    ["TLS", broker && (broker.tls ? "yes" : "no")],
    ["Version", number(stats.version)],
    ["Size", bytes(stats.bytes)],
    ["Object", `${bytes(stats.bytes - (stats.segment_bytes || 0))}, written by every commit`],
    ["Segments", stats.segments ? `${number(stats.segments)} with ${bytes(stats.segment_bytes)}` : ""],
    ["Partitions", stats.partitions || ""],
    ["Idempotency keys", number(stats.keys)],
    ["Client sessions", number(stats.sessions)],
  ]);
}
