// Requests to the server of this page, and the stream of events.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "the dashboard does not answer");
  }
  const text = await answer.text();
  if (!answer.ok) {
    let message = text.trim() || `status ${answer.status}`;
    try {
      message = JSON.parse(text).error;
    } catch {
      // It is plain text.
    }
    throw new ApiError(answer.status, message);
  }
  return JSON.parse(text);
}

export const get = (path) => request(path, {});
export const post = (path, document) =>
  request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(document) });

export const at = (queue, ...parts) => `/api/q/${[queue, ...parts].map(encodeURIComponent).join("/")}`;

/** Follows a queue. `onState` gets "live", "trouble" (with a reason) or "lost". */
export function follow(queue, onStats, onState) {
  const source = new EventSource(`${at(queue)}/events`);
  source.addEventListener("stats", (event) => {
    onState("live");
    onStats(JSON.parse(event.data));
  });
  source.addEventListener("trouble", (event) => onState("trouble", JSON.parse(event.data).error));
  let again = 0;
  source.addEventListener("error", () => {
    onState("lost");
    // A browser gives up after some errors, such as an answer that is not a stream.
    if (source.readyState === EventSource.CLOSED) again = setTimeout(() => onState("again"), 3000);
  });
  return () => {
    clearTimeout(again);
    source.close();
  };
}
