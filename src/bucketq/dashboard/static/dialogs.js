// Questions before something is changed, notices after it, and actions in slices.

import { at, post } from "./api.js";
import { h, number, replace } from "./dom.js";

const dialog = document.getElementById("dialog");
const notices = document.getElementById("notices");

export function notify(text, isError = false) {
  const notice = h("div", { class: isError ? "notice bad" : "notice" }, text);
  notices.append(notice);
  setTimeout(() => notice.remove(), isError ? 12000 : 6000);
}

export const isAsking = () => dialog.open;

function open(title, ...content) {
  replace(dialog, h("h2", { id: "dialog-title" }, title), ...content);
  if (!dialog.open) dialog.showModal();
}

export const close = () => dialog.open && dialog.close();

export function showKeys() {
  const keys = [
    ["/", "find a job by id or text"],
    ["j, k", "next, previous row"],
    ["Enter", "open the row"],
    ["n", "next page"],
    ["g then a letter", "go to overview (o), jobs (j), archive (r), workers (w), schedules (s), limits (l), batches (b), audit (a)"],
    ["Esc", "close, or leave a field"],
    ["?", "this list"],
  ];
  open(
    "Keyboard shortcuts",
    h("dl", { class: "keys" }, keys.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close, autofocus: true }, "Close")),
  );
}

/** The field of a priority, and what is sent of it. */
export const priorityField = (value) => ({
  fields: [{ name: "priority", label: "Priority (lower goes first)", value, attributes: { type: "number", step: 1, required: true } }],
  sends: (values) => ({ priority: Number(values.priority) }),
});

/** Asks, and calls `act` with the values of the fields; errors are shown in the dialog. */
export function ask({ title, text, label, danger, fields = [], act }) {
  const error = h("p", { class: "form-error", role: "alert" });
  const inputs = fields.map((field) => {
    const attributes = { id: `field-${field.name}`, name: field.name, spellcheck: "false", ...field.attributes };
    const input = field.lines ? h("textarea", { ...attributes, rows: field.lines }) : h("input", attributes);
    input.value = field.value ?? "";
    return h("label", { class: "field", for: attributes.id }, field.label, input);
  });
  const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        error.textContent = "";
        try {
          await act(Object.fromEntries(new FormData(form)));
          close();
        } catch (problem) {
          error.textContent = problem.message;
        } finally {
          submit.disabled = false;
        }
      },
    },
    text && h("p", {}, text),
    inputs,
    error,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Keep as it is"), submit),
  );
  open(title, form);
  (form.querySelector("input, textarea") || submit).focus();
}

/** A button that asks, then sends an action and says what came of it. */
export function actionButton(context, label, question, action) {
  if (!context.may(action.action)) return null;
  const act = async (values) => {
    const sent = typeof question.sends === "function" ? { ...action, ...question.sends(values) } : action;
    const changed = await post(`${at(context.queue)}/actions`, sent);
    notify(changed.text);
    if (changed.job && question.opens) context.go(`/q/${encodeURIComponent(context.queue)}/jobs/${encodeURIComponent(changed.job)}`);
    else context.refresh();
  };
  const name = question.about ? `${label} ${question.about}` : label;
  return h(
    "button",
    { type: "button", class: question.danger ? "small danger-outline" : "small", "aria-label": name, onclick: () => ask({ label, ...question, act }) },
    label,
  );
}

/** A button for all jobs that match a filter; it shows how far it is and can be stopped. */
export function bulkButton(context, label, action, filter, { text, danger, fields, sends }) {
  if (!context.may(action)) return null;
  const run = async (values) => {
    const more = sends ? sends(values) : {};
    let [after, count, isStopped] = [0, 0, false];
    const done = h("p", { role: "status" }, "Starting…");
    const stop = h("button", { type: "button", onclick: () => (isStopped = true) }, "Stop");
    open(label, done, h("div", { class: "buttons" }, stop));
    try {
      while (after !== null && !isStopped) {
        const changed = await post(`${at(context.queue)}/actions`, { action, filter, after, ...more });
        count += changed.count;
        after = changed.next_after;
        done.textContent = `${number(count)} jobs so far…`;
      }
      notify(`${label}: ${number(count)} jobs${isStopped ? ", then stopped" : ""}`);
    } catch (problem) {
      notify(`${label}: ${number(count)} jobs, then: ${problem.message}`, true);
    }
    close();
    context.refresh();
  };
  // `ask` closes the dialog when `act` returns, so the work begins after that.
  const question = { title: `${label}?`, text, label, danger, fields, act: async (values) => void setTimeout(run, 0, values) };
  return h("button", { type: "button", class: danger ? "small danger-outline" : "small", onclick: () => ask(question) }, label);
}
