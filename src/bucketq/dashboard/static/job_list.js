// The list of jobs: filters, pages, and a text search that reads in slices.

import { at, get } from "./api.js";
import { bulkButton, priorityField } from "./dialogs.js";
import { ago, h, link, local, moment, number, progressBar, replace, statusOf, table } from "./dom.js";

const STATUSES = [["", "All"], ["queued", "Waiting"], ["running", "Running"], ["dead", "Dead"], ["done", "Finished"]];
const FILTERS = ["status", "kind", "group", "tag", "batch"];
const PAGE = 100;
const SEARCHES = ["text", "since", "until"];

export async function jobList(context) {
  const { query } = context;
  const base = `/q/${encodeURIComponent(context.queue)}`;
  const text = query.get("text") || "";
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.getAll(name).filter(Boolean)]));
  const isSearch = SEARCHES.some((name) => query.get(name));
  const about = [text && `“${text}”`, query.get("since") && `pushed from ${moment(query.get("since"))}`, query.get("until") && `pushed before ${moment(query.get("until"))}`].filter(Boolean).join(", ");
  const chosen = (name) => filter[name]?.[0] || "";
  const address = (changes) => {
    const next = new URLSearchParams();
    for (const name of [...FILTERS, ...SEARCHES]) for (const value of query.getAll(name)) if (value) next.append(name, value);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      if (value) next.set(name, value);
    }
    return `${base}/jobs${next.size ? `?${next}` : ""}`;
  };

  const [list, pager, bulk, found] = [h("div"), h("div", { class: "pager" }), h("div", { class: "buttons" }), h("p", { class: "found", role: "status" })];
  const chips = h("div", { class: "choice", role: "group", "aria-label": "Status" });
  const kinds = h("select", { id: "kind", onchange: (event) => context.go(address({ kind: event.target.value })) });
  const field = (name, label, placeholder) =>
    h("label", {}, h("span", {}, label), h("input", { name, value: chosen(name), placeholder, autocomplete: "off", spellcheck: "false" }));
  const time = (name, label) => h("label", {}, h("span", {}, label), h("input", { name, type: "datetime-local", value: query.get(name) ? local(query.get(name)) : null }));
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
    h("label", {}, h("span", {}, "Kind"), kinds),
    field("group", "Group", "any"),
    field("tag", "Tag", "name=value"),
    field("batch", "Batch", "any"),
    time("since", "Pushed from"),
    time("until", "Pushed before"),
    field("text", "Text", "in ids, payloads, errors"),
    h("button", { type: "submit" }, "Filter"),
    (isSearch || FILTERS.some((name) => chosen(name))) && link(`${base}/jobs`, "Clear"),
  );
  form.querySelector("[name=text]").value = text;

  function showCounts(stats) {
    if (!stats) return;
    const count = (status) =>
      Object.entries(stats.counts).reduce((sum, [kind, by]) => (chosen("kind") && kind !== chosen("kind") ? sum : sum + (status ? by[status] || 0 : Object.values(by).reduce((a, b) => a + b, 0))), 0);
    if (!chips.contains(document.activeElement)) {
      replace(
        chips,
        STATUSES.map(([status, name]) => {
          const chip = link(address({ status }), name, " ", h("b", {}, number(count(status))));
          if (status === chosen("status")) chip.setAttribute("aria-current", "true");
          return chip;
        }),
      );
    }
    if (document.activeElement !== kinds) {
      const names = Object.keys(stats.counts).sort();
      if (chosen("kind") && !names.includes(chosen("kind"))) names.push(chosen("kind"));
      replace(kinds, h("option", { value: "" }, "any"), names.map((name) => h("option", { value: name }, name)));
      kinds.value = chosen("kind");
    }
  }

  replace(context.main, h("div", { class: "title" }, h("h1", {}, "Jobs"), bulk), chips, form, found, list, pager);
  showCounts(context.stats());
  const meant = { status: filter.status, kind: filter.kind, group: filter.group, tag: filter.tag, batch: chosen("batch") };
  const kindText = chosen("kind") ? ` of kind ${chosen("kind")}` : "";
  const words = `all jobs${kindText} that match the filter`;
  const isFor = (...statuses) => !isSearch && (!chosen("status") || statuses.includes(chosen("status")));
  const showBulk = () =>
    replace(
      bulk,
      isFor("dead") && bulkButton(context, "Retry dead jobs", "redrive-all", meant, { text: `Queues ${words} and are dead again, with all their attempts.` }),
      isFor("dead") && bulkButton(context, "Purge dead jobs", "purge-all", meant, { text: `Moves ${words} and are dead to the archive. They cannot be queued again.`, danger: true }),
      isFor("queued") && bulkButton(context, "Change priority", "set-priority-all", meant, { text: `Gives ${words} and wait another priority.`, ...priorityField(0) }),
      isFor("queued", "running") && bulkButton(context, "Cancel jobs", "cancel-all", meant, { text: `Cancels ${words} and wait, and asks the workers of running ones to stop.`, danger: true }),
    );
  showBulk();

  const filters = new URLSearchParams();
  for (const name of FILTERS) for (const value of filter[name]) filters.append(name, value);

  if (isSearch) {
    for (const name of SEARCHES) if (query.get(name)) filters.append(name, query.get(name));
    let isStopped = false;
    context.onLeave(() => (isStopped = true));
    search(Number(query.get("after") || 0), []);
    async function search(after, rows) {
      let searched = 0;
      const stop = h("button", { type: "button", class: "small", onclick: () => (isStopped = true) }, "Stop");
      try {
        do {
          const slice = await get(`${at(context.queue)}/search?${filters}&after=${after || 0}`);
          if (isStopped && !list.isConnected) return;
          searched += slice.searched;
          rows.push(...slice.jobs);
          after = slice.next_after;
          replace(found, `${about}: ${number(rows.length)} found in ${number(searched)} jobs searched${after === null ? "." : " so far… "}`, after !== null && stop);
          replace(list, jobTable(rows));
        } while (after !== null && !isStopped && rows.length < 100);
        if (after !== null) {
          const more = h("button", { type: "button", onclick: () => ((isStopped = false), search(after, [])) }, "Search on");
          replace(found, `${about}: ${number(rows.length)} found in ${number(searched)} jobs searched; there are more. `, more);
        }
      } catch (problem) {
        replace(found, problem.message);
      }
    }
    return { onStats: (document) => showCounts(document.stats) };
  }

  let version = -1;
  let [isLoading, isLong, isOver] = [false, false, false];
  context.onLeave(() => (isOver = true));

  /** Reads a page. Few jobs may match a tag, a group or a batch: then it shows how far it is. */
  async function read() {
    let after = query.get("after") || 0;
    const jobs = [];
    let isStopped = false;
    const stop = h("button", { type: "button", class: "small", onclick: () => (isStopped = true) }, "Stop");
    for (;;) {
      const part = await get(`${at(context.queue)}/jobs?${filters}&after=${after}`);
      jobs.push(...part.jobs);
      after = part.next_after;
      if (after === null || jobs.length >= PAGE || isStopped || isOver) return { jobs, next_after: after };
      isLong = true;
      const all = context.stats()?.pushed;
      replace(found, `${number(jobs.length)} found up to number ${number(after)}${all ? ` of ${number(all)}` : ""}… `, stop);
      replace(list, jobTable(jobs, "None yet."));
    }
  }

  async function load() {
    if (isLoading) return;
    isLoading = true;
    try {
      const page = await read();
      if (isOver) return;
      replace(found, isLong ? `${number(page.jobs.length)} found${page.next_after === null ? "" : `, up to number ${number(page.next_after)}`}.` : "");
      const focused = list.contains(document.activeElement) ? [...list.querySelectorAll("tbody tr")].findIndex((row) => row.contains(document.activeElement)) : -1;
      replace(list, jobTable(page.jobs));
      if (focused >= 0) list.querySelectorAll("tbody tr")[focused]?.querySelector("a")?.focus();
      replace(
        pager,
        Number(query.get("after") || 0) > 0 && link(address({}), "First page"),
        page.next_after !== null && h("a", { href: address({ after: String(page.next_after) }), "data-link": true, rel: "next" }, "Next page"),
      );
    } finally {
      isLoading = false;
    }
  }
  const first = load();
  // What takes longer is shown as it is found.
  await Promise.race([first, new Promise((resolve) => setTimeout(resolve, 1500))]);
  first.catch((problem) => replace(found, problem.message));
  return {
    onStats(document) {
      showCounts(document.stats);
      if (!bulk.childElementCount) showBulk();
      if (document.stats.version === version) return;
      const isFirst = version === -1;
      version = document.stats.version;
      if (!isFirst && !isLong) load().catch(() => {});
    },
    refresh: load,
  };

  function jobTable(rows, empty = "No jobs match.") {
    const columns = [
      { title: "Status", cell: statusOf },
      { title: "Kind", cell: (job) => job.kind },
      { title: "Job", class: "id", cell: (job) => link(`${base}/jobs/${encodeURIComponent(job.id)}`, job.id) },
      { title: "Payload", class: "cut", cell: (job) => h("code", {}, job.payload) },
      { title: "Group, tags", class: "labels", cell: (job) => labels(job) },
      { title: "Attempts", class: "number count", cell: (job) => `${job.attempt}` },
      { title: "Pushed", cell: (job) => ago(job.pushed_at) },
      { title: "Now", class: "cut", cell: (job) => nowOf(job) },
    ];
    return table(columns, rows, { caption: "Jobs", empty, rowAttributes: () => ({ class: "row" }) });
  }

  function labels(job) {
    const shown = [];
    if (job.group) shown.push(link(address({ group: job.group }), h("span", { class: "tag" }, job.group)));
    for (const [name, value] of Object.entries(job.tags || {})) shown.push(link(address({ tag: `${name}=${value}` }), h("span", { class: "tag" }, `${name}=${value}`)));
    return h("span", { class: "tags" }, shown);
  }

  function nowOf(job) {
    if (job.status === "running") return [progressBar(job.progress) || job.worker || ""];
    if (job.status === "queued" && job.run_at && new Date(job.run_at) > new Date()) return ["runs ", ago(job.run_at)];
    if (job.status === "done") return ["ended ", ago(job.finished_at)];
    return h("span", { class: "error-line" }, job.error);
  }
}
