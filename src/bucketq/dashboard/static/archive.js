// Finished jobs by the time at which they ended, the latest first. A search reads back in slices.

import { at, get } from "./api.js";
import { ago, badge, duration, h, link, local, moment, number, replace, table } from "./dom.js";

const OUTCOMES = ["completed", "dead", "cancelled", "expired"];
const FIELDS = ["since", "until", "kind", "outcome"];
const PAGE = 100;

const seconds = (from, to) => (from && to ? (new Date(to) - new Date(from)) / 1000 : null);

export async function archiveList(context) {
  const { query } = context;
  const base = context.address("archive");
  const given = (name) => query.get(name) || "";
  const address = (values) => {
    const next = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) if (value) next.set(name, value);
    return `${base}${next.size ? `?${next}` : ""}`;
  };
  const chosen = Object.fromEntries(FIELDS.map((name) => [name, given(name)]));
  const input = (name, label, attributes) => h("label", {}, h("span", {}, label), h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes }));
  const outcomes = h("select", { name: "outcome" }, h("option", { value: "" }, "any"), OUTCOMES.map((each) => h("option", { value: each }, each)));
  outcomes.value = chosen.outcome;
  const since = chosen.since || new Date(Date.now() - 86400000).toISOString();
  const form = h(
    "form",
    {
      class: "filters",
      "aria-label": "Filters",
      onsubmit: (event) => {
        event.preventDefault();
        const values = Object.fromEntries(new FormData(form));
        for (const name of ["since", "until"]) if (values[name]) values[name] = new Date(values[name]).toISOString();
        context.go(address(values));
      },
    },
    input("since", "Ended from", { type: "datetime-local", value: local(since) }),
    input("until", "Ended before", { type: "datetime-local", value: chosen.until ? local(chosen.until) : null }),
    input("kind", "Kind", { value: chosen.kind, placeholder: "any" }),
    h("label", {}, h("span", {}, "Outcome"), outcomes),
    h("button", { type: "submit" }, "Search"),
    FIELDS.some(given) && link(base, "Clear"),
  );
  const [found, list, pager] = [h("p", { class: "found", role: "status" }), h("div"), h("div", { class: "pager" })];
  replace(context.main, h("div", { class: "title" }, h("h1", {}, "Archive")), h("p", { class: "muted" }, "Jobs that have left the queue, the latest first."), form, found, list, pager);

  let isStopped = false;
  context.onLeave(() => (isStopped = true));
  const rows = [];
  const stop = h("button", { type: "button", class: "small", onclick: () => (isStopped = true) }, "Stop");

  async function slice(before) {
    const wanted = new URLSearchParams(Object.entries({ ...chosen, since, before }).filter(([, value]) => value));
    const part = await get(`${at(context.queue)}/archive?${wanted}`);
    rows.push(...part.jobs);
    return part;
  }
  function show(part) {
    replace(list, rows.length || !part.next_before ? archiveTable(rows) : null);
    const isSearching = part.next_before && rows.length < PAGE && !isStopped;
    replace(found, `${number(rows.length)} ${rows.length === 1 ? "job" : "jobs"}, read back to ${moment(part.read_from)}${isSearching ? "… " : "."}`, isSearching && stop);
    replace(
      pager,
      given("before") && link(address(chosen), "Latest"),
      part.next_before && !isSearching && h("a", { href: address({ ...chosen, since, before: part.next_before }), "data-link": true, rel: "next" }, "Older jobs"),
    );
    return isSearching;
  }
  async function searchOn(part) {
    try {
      while (show(part)) part = await slice(part.next_before);
    } catch (problem) {
      if (!isStopped) replace(found, problem.message);
    }
  }
  try {
    searchOn(await slice(given("before")));
  } catch (problem) {
    if (problem.status !== 400) throw problem;
    replace(found, problem.message); // The fields stay, to be corrected.
  }
  return {};

  function archiveTable(jobs) {
    const columns = [
      { title: "Outcome", cell: (job) => badge(job.outcome, job.outcome === "completed" ? "done" : job.outcome === "dead" ? "dead" : "wait") },
      { title: "Kind", cell: (job) => link(address({ ...chosen, kind: job.kind }), job.kind) },
      { title: "Job", class: "id", cell: (job) => link(`${context.address("archive", job.id)}?at=${encodeURIComponent(job.finished_at)}`, job.id) },
      { title: "Payload", class: "cut", cell: (job) => h("code", {}, job.payload) },
      { title: "Attempts", class: "number", cell: (job) => `${job.attempt}` },
      { title: "Waited", class: "number", cell: (job) => (job.attempt === 1 ? duration(seconds(job.pushed_at, job.claimed_at)) : "–") },
      { title: "Ran", class: "number", cell: (job) => duration(seconds(job.claimed_at, job.finished_at)) },
      { title: "Ended", cell: (job) => ago(job.finished_at) },
      { title: "Error", class: "cut", cell: (job) => h("span", { class: "error-line" }, job.error) },
    ];
    return table(columns, jobs, { caption: "Finished jobs", empty: "No jobs ended in this time.", rowAttributes: () => ({ class: "row" }) });
  }
}
