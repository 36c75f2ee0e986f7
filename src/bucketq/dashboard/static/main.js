// The page: which view an address shows, the connection to the queue, and the keyboard.

import { archiveList } from "./archive.js";
import { at, follow, get, post } from "./api.js";
import { isAsking, notify, showKeys } from "./dialogs.js";
import { h, link, replace } from "./dom.js";
import { jobList } from "./job_list.js";
import { archivedJob, jobPage } from "./job_page.js";
import { overview } from "./overview.js";
import { isTable, tableTitle, tableView } from "./tables.js";

const VIEWS = ["", "jobs", "archive", "workers", "schedules", "limits", "batches", "consumers", "tokens", "settings", "audit"];
const GO = { o: "", j: "jobs", r: "archive", w: "workers", s: "schedules", l: "limits", b: "batches", a: "audit" };
// What a token may do without the right "admin".
const NEEDS_PUSH = new Set(["push", "close-batch"]);
const LONG_AGO = 10000;

const element = (id) => document.getElementById(id);
const main = element("main");

let session = { queues: [], login: false, read_only: false };
let [queue, rights, stats] = ["", [], null];
let [stopFollowing, view, leave, turn] = [null, null, [], 0];
let [state, since] = ["", 0];

const address = (...parts) => `/q/${[queue, ...parts].map(encodeURIComponent).join("/")}`;

function setState(next, reason) {
  if (next === "again") return connect();
  if (next !== state) since = Date.now();
  state = next;
  const words = { live: "live", trouble: "queue does not answer", lost: "reconnecting", closed: "not logged in" };
  element("live").className = `live ${next}`;
  element("live").lastElementChild.textContent = words[next] || "connecting";
  const trouble = element("trouble");
  trouble.hidden = !["trouble", "lost"].includes(next);
  const seconds = Math.round((Date.now() - since) / 1000);
  const passed = seconds > 2 ? ` for ${seconds} s` : "";
  if (next === "lost") trouble.textContent = `No connection to the dashboard${passed}. What you see may be old; reconnecting…`;
  if (next === "trouble") trouble.textContent = `The queue does not answer${passed}: ${reason}. What you see may be old; trying again…`;
}

function connect() {
  stopFollowing?.();
  setState("");
  stopFollowing = follow(
    queue,
    (document_) => {
      stats = document_.stats;
      rights = session.read_only ? ["read"] : document_.rights;
      showMode();
      if (!isAsking()) view?.onStats?.(document_);
    },
    (next, reason) => {
      setState(next, reason);
      if (next === "lost") checkSession();
    },
  );
}

/** A stream also ends when the session is over; then the user must log in again. */
async function checkSession() {
  if (!session.login) return;
  try {
    session = await get("/api/session");
    if (!session.queues.find((each) => each.name === queue)?.open) route();
  } catch {
    // The dashboard does not answer, and the page says so already.
  }
}

function showMode() {
  const isReader = rights.length > 0 && !rights.includes("admin") && !rights.includes("push");
  element("mode").hidden = !isReader;
  element("mode").textContent = "read-only";
}

const may = (action) => rights.includes("admin") || (NEEDS_PUSH.has(action) && rights.includes("push"));

function showLogin(name) {
  stopFollowing?.();
  setState("closed");
  const error = h("p", { class: "form-error", role: "alert" });
  const form = h(
    "form",
    {
      class: "login panel",
      onsubmit: async (event) => {
        event.preventDefault();
        error.textContent = "";
        try {
          await post("/api/login", { queue: name, token: form.elements.token.value });
          session = await get("/api/session");
          route();
        } catch (problem) {
          error.textContent = problem.message;
        }
      },
    },
    h("h1", {}, `Log in to ${name}`),
    h("p", { class: "muted" }, "Enter a token of the queue. Its rights decide what you may do here. `bucketq token create` makes one."),
    h("label", { class: "field", for: "token" }, "Token", h("input", { id: "token", name: "token", type: "password", autocomplete: "off", required: true })),
    error,
    h("div", { class: "buttons" }, h("button", { class: "primary", type: "submit" }, "Log in")),
  );
  replace(main, form);
  form.elements.token.focus();
}

function showNavigation(name) {
  const titles = { "": "Overview", jobs: "Jobs", archive: "Archive" };
  replace(
    element("views"),
    VIEWS.map((each) => {
      const item = link(each ? address(each) : address(), titles[each] || tableTitle(each));
      if (each === name) item.setAttribute("aria-current", "page");
      return item;
    }),
  );
  element("views").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

async function route() {
  const mine = ++turn;
  leave.forEach((each) => each());
  leave = [];
  view = null;
  const [, q, name, view_, id] = location.pathname.split("/").map(decodeURIComponent);
  const known = session.queues.find((each) => q === "q" && each.name === name);
  if (!known) {
    if (!session.queues.length) return replace(main, h("p", {}, "There are no queues here."));
    history.replaceState(null, "", `/q/${encodeURIComponent(session.queues[0].name)}`);
    return route();
  }
  const isOther = queue !== known.name;
  queue = known.name;
  element("queue").value = queue;
  document.title = `${[id, view_ || "overview", queue].filter(Boolean).join(" · ")} · bucketq`;
  showNavigation(view_ || "");
  if (!known.open) {
    queue = "";
    return showLogin(known.name);
  }
  element("logout").hidden = !session.login;
  if (isOther) {
    stats = null;
    rights = session.read_only && known.rights.length ? ["read"] : known.rights;
    showMode();
    connect();
  }
  const context = {
    main, queue, address, may, notify,
    query: new URLSearchParams(location.search),
    stats: () => stats,
    rights: () => rights.join(),
    go, keep,
    refresh: () => view?.refresh?.().catch((problem) => notify(problem.message, true)),
    onLeave: (call) => leave.push(call),
  };
  main.setAttribute("aria-busy", "true");
  try {
    const made = await show(context, view_ || "", id);
    if (mine === turn) {
      view = made;
      // What was counted while the view was loading.
      if (stats) view?.onStats?.({ stats, samples: [], rights });
    }
  } catch (problem) {
    if (mine !== turn) return;
    if (problem.status === 401) {
      session = await get("/api/session");
      return route();
    }
    replace(main, h("div", { class: "panel" }, h("h1", {}, { 403: "Not allowed", 404: "Not here" }[problem.status] || "That did not work"), h("p", {}, problem.message), problem.status === 404 && view_ === "jobs" && id && h("p", {}, link(address("archive", id), "Look for it in the archive")), h("button", { type: "button", onclick: route }, "Try again")));
    view = { onStats: state === "live" && problem.status !== 404 ? once(route) : null };
  } finally {
    if (mine === turn) main.removeAttribute("aria-busy");
  }
}

function once(call) {
  let isOver = false;
  const began = Date.now();
  return () => {
    if (isOver || Date.now() - began < LONG_AGO) return;
    isOver = true;
    call();
  };
}

function show(context, name, id) {
  if (name === "jobs") return id ? jobPage(context, id) : jobList(context);
  if (name === "archive") return id ? archivedJob(context, id) : archiveList(context);
  if (isTable(name)) return tableView(context, name);
  return overview(context);
}

function go(href) {
  if (href !== location.pathname + location.search) history.pushState(null, "", href);
  window.scrollTo(0, 0);
  route();
}

/** Changes the query of the address and stays in the view. */
function keep(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}

async function find(text) {
  if (!text) return;
  if (!/\s/.test(text)) {
    try {
      await get(at(queue, "jobs", text));
      return go(address("jobs", text));
    } catch {
      // It is not the id of a job that is in the queue: search for it.
    }
  }
  go(`${address("jobs")}?text=${encodeURIComponent(text)}`);
}

function move(step) {
  const rows = [...main.querySelectorAll("tr.row")];
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now < 0 ? 0 : now + step))];
  const target = next.querySelector("a, button") || next;
  if (target === next) next.tabIndex = -1;
  (next.querySelector("td.id a") || target).focus();
  next.scrollIntoView({ block: "nearest" });
}

let isGoing = false;
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "Escape" && isTyping && !isAsking()) event.target.blur();
  if (isTyping || isAsking() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isGoing) {
    isGoing = false;
    if (event.key in GO && queue) go(GO[event.key] ? address(GO[event.key]) : address());
    return;
  }
  const keys = {
    "/": () => element("find-text").focus(),
    "?": showKeys,
    j: () => move(1),
    k: () => move(-1),
    n: () => main.querySelector("[rel=next]")?.click(),
    g: () => (isGoing = true),
  };
  if (event.key in keys) {
    event.preventDefault();
    keys[event.key]();
  }
});

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[data-link]");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(anchor.getAttribute("href"));
});
window.addEventListener("popstate", route);
// A browser opens six connections to a host at most, for all of its pages: one that is not seen
// keeps none.
const pauseFollowing = () => {
  stopFollowing?.();
  stopFollowing = null;
};
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return pauseFollowing();
  if (queue && !stopFollowing) connect();
  view?.refresh?.().catch(() => {});
});
window.addEventListener("pagehide", pauseFollowing);
window.addEventListener("pageshow", (event) => event.persisted && queue && connect());
element("find").addEventListener("submit", (event) => {
  event.preventDefault();
  element("find-text").blur();
  find(element("find-text").value.trim());
});
element("queue").addEventListener("change", (event) => go(`/q/${encodeURIComponent(event.target.value)}`));
element("help").addEventListener("click", showKeys);
element("logout").addEventListener("click", async () => {
  await post("/api/logout", {});
  session = await get("/api/session");
  queue = "";
  route();
});

const theme = localStorage.getItem("bucketq-theme");
if (theme) document.documentElement.dataset.theme = theme;
element("theme").addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("bucketq-theme", document.documentElement.dataset.theme);
});

async function start() {
  try {
    session = await get("/api/session");
  } catch (problem) {
    replace(main, h("p", { class: "note" }, `${problem.message}; trying again…`));
    setTimeout(start, 2000);
    return;
  }
  replace(element("queue"), session.queues.map((each) => h("option", { value: each.name }, each.name)));
  element("queue").parentElement.classList.toggle("single", session.queues.length < 2);
  route();
}
start();
