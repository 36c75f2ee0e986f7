// The overview of a queue: what it counts now and counted before, its kinds, and its broker.

import { at, get } from "./api.js";
import { chart, spark } from "./charts.js";
import { actionButton } from "./dialogs.js";
import { ago, badge, bytes, duration, facts, h, link, number, panel, replace, table } from "./dom.js";

const SPANS = [["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];
const STATUSES = ["queued", "running", "done", "dead"];

const total = (stats, status) => Object.values(stats.counts).reduce((sum, by) => sum + (by[status] || 0), 0);

function perSecond(sample, before, field) {
  if (!before || sample[0] <= before[0]) return 0;
  return Math.max(0, ((sample[field] - before[field]) * 1000) / (sample[0] - before[0]));
}

const FLOW_MS = 15000;
const rate = (value) => (value < 10 ? value.toFixed(1) : number(Math.round(value)));
const percent = (flow) => (flow && flow.attempts ? `${((100 * flow.failed) / flow.attempts).toFixed(flow.failed ? 1 : 0)} %` : "–");
const middle = (values) => (values ? duration(values[0]) : "–");
const most = (values) => (values ? duration(values[1]) : "–");
const both = (values) => (values ? `${middle(values)} / ${most(values)}` : "–");

export async function overview(context) {
  const base = `/q/${encodeURIComponent(context.queue)}`;
  const first = await get(`${at(context.queue)}/stats`);
  let samples = first.samples;
  let span = SPANS.find(([, s]) => String(s) === context.query.get("span"))?.[1] || 600;

  let flow = null;
  let latest = first.stats;
  const counts = chart("Jobs by status", [
    { name: "waiting", look: "queued", value: (s) => s[1] },
    { name: "delayed", look: "wait", value: (s) => s[8] },
    { name: "running", look: "running", value: (s) => s[2] },
    { name: "dead", look: "dead", value: (s) => s[4] },
  ]);
  const oldest = chart("Age of the oldest waiting job", [{ name: "", look: "wait", value: (s) => s[5] }], duration);
  const commits = chart("Commits per second", [{ name: "", look: "running", value: (s, before) => perSecond(s, before, 6) }], rate);
  const latency = chart("Commit latency", [
    { name: "p50", look: "running", value: (s) => s[12] ?? null },
    { name: "p99", look: "wait", value: (s) => s[13] ?? null },
  ], duration);
  const through = chart("Jobs ended per second", [
    { name: "ended", look: "done", value: (s) => s[1] },
    { name: "failed attempts", look: "dead", value: (s) => s[2] },
  ], rate);
  const [cards, notes, kinds, broker] = [h("div", { class: "cards" }), h("div"), h("div"), h("div")];
  const flowNote = h("p", { class: "muted flow-note" });
  /** How often the broker has changed in the time shown, as far as this page has seen it. */
  function takeovers() {
    const since = Date.now() - span * 1000;
    const shown = samples.filter((s) => s[0] >= since && s[11] !== undefined);
    return shown.length ? shown[shown.length - 1][11] - shown[0][11] : 0;
  }
  const redraw = () => [counts, oldest, commits, latency].forEach((each) => each.draw(samples, span));

  async function loadFlow() {
    if (document.hidden) return;
    const wanted = span;
    let found;
    try {
      found = await get(`${at(context.queue)}/flow?span=${wanted}`);
    } catch (problem) {
      replace(flowNote, `Throughput and percentiles: ${problem.message}`);
      return;
    }
    if (wanted !== span) return;
    flow = found;
    // The last part is not over, so its rate would look like a drop.
    const points = flow.all.by_time.slice(0, -1).map((count, n) => [flow.since_ms + (n + 1) * flow.step_s * 1000, count / flow.step_s, flow.all.failed_by_time[n] / flow.step_s]);
    through.draw(points, span);
    const sampled = flow.files > flow.read_files ? `estimated from ${number(flow.read_files)} of ${number(flow.files)} archive files` : "";
    replace(flowNote, ["Rates, failures and percentiles: jobs that ended in the time shown", sampled, flow.note].filter(Boolean).join("; "), ".");
    show(latest);
  }
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
          loadFlow();
        },
      }, name),
    ),
  );

  function show(stats) {
    if (!stats) return;
    const jobs = (status) => `${base}/jobs?status=${status}`;
    const card = (label, value, look, href, note) =>
      h("div", { class: `card ${look}` }, h("span", { class: "label" }, label), h("strong", {}, href ? link(href, value) : value), h("small", {}, note || " "));
    const sum = (counts) => Object.values(counts || {}).reduce((all, n) => all + n, 0);
    const [held, delayed] = [sum(stats.held), sum(stats.delayed)];
    const [last, before] = [samples[samples.length - 1], samples[samples.length - 6] || samples[0]];
    const lately = (field) => (last ? `${rate(perSecond(last, before, field))}/s` : "–");
    const all = flow && flow.all;
    replace(
      cards,
      card("Waiting", number(total(stats, "queued")), "queued", jobs("queued"), held ? `${number(held)} held for others` : ""),
      card("Delayed", number(delayed), "wait", null, delayed ? "of the waiting, not due yet" : ""),
      card("Running", number(total(stats, "running")), "running", jobs("running")),
      card("Dead", number(total(stats, "dead")), "dead", jobs("dead"), total(stats, "dead") ? "failed too often" : ""),
      card("Oldest waiting", duration(stats.oldest_queued_s), "wait"),
      card("Throughput", lately(10), "done", null, `${lately(9)} pushed`),
      card("Error rate", percent(all), "dead", null, "of attempts"),
      card("Waited, p95", all ? most(all.wait_s) : "–", "queued", null, all ? `median ${middle(all.wait_s)}` : ""),
      card("Ran, p95", all ? most(all.run_s) : "–", "running", null, all ? `median ${middle(all.run_s)}` : ""),
      card("Commits", lately(6), "done", null, stats.commit_stats?.measured ? `median ${duration(stats.commit_stats.took_s[0])}` : `version ${number(stats.version)}`),
    );
    replace(notes, noteTexts(stats).map((text) => h("p", { class: "note" }, text)));
    replace(kinds, kindTable(stats));
    replace(broker, brokerFacts(stats, takeovers()));
  }

  function kindTable(stats) {
    const flows = flow ? flow.kinds : {};
    const known = Object.keys(flows).filter((kind) => !stats.counts[kind]).map((kind) => [kind, {}]);
    const rows = [...Object.entries(stats.counts), ...known].sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const ended = (kind) => (flows[kind] ? number(flows[kind].ended) : flow ? "0" : "–");
    const columns = [
      { title: "Kind", cell: ([kind]) => [link(`${base}/jobs?kind=${encodeURIComponent(kind)}`, kind), " ", (stats.paused || stats.paused_kinds.includes(kind)) && badge("paused", "wait")] },
      ...STATUSES.map((status) => ({
        title: status === "queued" ? "Waiting" : status[0].toUpperCase() + status.slice(1),
        class: "number count",
        cell: ([kind, by]) => (by[status] ? link(`${base}/jobs?status=${status}&kind=${encodeURIComponent(kind)}`, number(by[status])) : "0"),
      })),
      { title: "Delayed", class: "number count", cell: ([kind]) => number((stats.delayed || {})[kind] || 0) },
      { title: "Ended", class: "number count ended", cell: ([kind]) => h("span", {}, flows[kind] && spark(flows[kind].by_time, `${kind}: jobs ended over time`), ended(kind)) },
      { title: "Errors", class: "number", cell: ([kind]) => percent(flows[kind]) },
      { title: "Waited p50 / p95", class: "number", cell: ([kind]) => both(flows[kind] && flows[kind].wait_s) },
      { title: "Ran p50 / p95", class: "number", cell: ([kind]) => both(flows[kind] && flows[kind].run_s) },
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
    h("div", { class: "panel" }, through.element),
    h("div", { class: "pair three" }, [oldest, commits, latency].map((each) => h("div", { class: "panel" }, each.element))),
    panel("Kinds", kinds, flowNote),
    panel("Broker and storage", broker),
  );
  show(first.stats);
  showAll(first.stats);
  redraw();
  through.draw([], span);
  loadFlow();
  const again = setInterval(loadFlow, FLOW_MS);
  context.onLeave(() => clearInterval(again));
  let shownRights = "";
  return {
    onStats(document) {
      const known = samples.length ? samples[samples.length - 1][0] : 0;
      samples = [...samples, ...document.samples.filter((s) => s[0] > known)].slice(-3000);
      latest = document.stats;
      show(latest);
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
    .map(([kind, by]) => [kind, (by.queued || 0) - ((stats.held || {})[kind] || 0) - ((stats.delayed || {})[kind] || 0), by.running])
    .filter(([kind, waiting, running]) => waiting > 0 && !running && !stats.paused && !stats.paused_kinds.includes(kind))
    .map(([kind, waiting]) => `${kind} (${number(waiting)})`);
  const named = idle.slice(0, 10).join(", ") + (idle.length > 10 ? ` and ${number(idle.length - 10)} more` : "");
  if (idle.length) texts.push(`Waiting with none of their kind running: ${named}. Unless they are delayed, check that a worker has a handler for them.`);
  return texts.slice(0, 8);
}

const OLD_BROKER = "not known: the broker is of an older version";

/** The commits of the broker; without one, processes commit by themselves and none knows of all. */
function commitFacts(stats) {
  const found = stats.commit_stats;
  const counted = (text) => (found ? text() : OLD_BROKER);
  const lately = (values, format) => counted(() => (found.measured ? `${format(values()[0])}, p99 ${format(values()[1])}` : "no commits in the last minute"));
  return [
    ["Commit latency", lately(() => found.took_s, duration)],
    ["Commit size", lately(() => found.size_bytes, bytes)],
    ["Batch size", lately(() => found.requests, (count) => `${number(count)} ${count === 1 ? "request" : "requests"}`)],
    ["Storage errors", counted(() => `${number(found.storage_errors)} requests for the object failed`)],
    ["Conflicts", counted(() => `${number(found.conflicts)} of ${number(found.commits + found.conflicts)} writes`)],
  ];
}

function brokerFacts(stats, takeovers) {
  const broker = stats.broker && stats.broker.address ? stats.broker : null;
  const epoch = stats.broker && stats.broker.epoch;
  return facts([
    ["Leader", broker ? broker.address : "none: processes write the object themselves"],
    ["Leads since", broker && ago(broker.since)],
    ["Host", broker && (broker.host || "").split("/")[0]],
    ["Epoch", stats.broker && number(epoch)],
    ["Takeovers", stats.broker && `${number(takeovers)} in the time shown, ${number(epoch)} ever`],
    ["TLS", broker && (broker.tls ? "yes" : "no")],
    ...(broker ? commitFacts(stats) : []),
    ["Version", number(stats.version)],
    ["Size", bytes(stats.bytes)],
    ["Object", `${bytes(stats.bytes - (stats.segment_bytes || 0))}, written by every commit`],
    ["Segments", stats.segments ? `${number(stats.segments)} with ${bytes(stats.segment_bytes)}` : "none"],
    ["Partitions", stats.partitions || ""],
    ["Idempotency keys", number(stats.keys)],
    ["Client sessions", number(stats.sessions)],
  ], "columns");
}
