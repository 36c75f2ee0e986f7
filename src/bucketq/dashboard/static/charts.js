// Charts of samples: [at_ms, queued, running, done, dead, oldest_s, version, bytes, delayed, pushed, ended,
// epoch, commit_p50_s, commit_p99_s]. A value that is null is not known, and leaves a gap.

import { clock, h, number, replace, svg } from "./dom.js";

const WIDTH = 1000;
const HEIGHT = 200;

/** The highest label of an axis: 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

/** Draws `series`, each {name, look, value(sample, before)}, over a span of seconds. */
export function chart(title, series, format = number) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  const high = h("span", { class: "axis-high" });
  const legend = h("div", { class: "legend" });
  const [first, last] = [h("span"), h("span")];
  const element = h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", {}, title), legend),
    h("div", { class: "plot" }, high, picture),
    h("div", { class: "axis", "aria-hidden": "true" }, first, last),
  );
  let drawn = [];

  const describe = (place) => {
    const point = drawn[place];
    replace(
      legend,
      series.map((s, n) => h("span", { class: "key" }, h("i", { class: `dot ${s.look}` }), `${s.name} `, h("b", {}, point ? format(point.values[n]) : "–"))),
    );
  };

  picture.addEventListener("pointermove", (event) => {
    if (!drawn.length) return;
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    let best = 0;
    drawn.forEach((point, place) => {
      if (Math.abs(point.x - x) < Math.abs(drawn[best].x - x)) best = place;
    });
    describe(best);
    last.textContent = clock(new Date(drawn[best].at));
  });
  picture.addEventListener("pointerleave", () => {
    describe(drawn.length - 1);
    if (drawn.length) last.textContent = clock(new Date(drawn[drawn.length - 1].at));
  });

  function draw(samples, longest) {
    const until = samples.length ? samples[samples.length - 1][0] : Date.now();
    // If less is known than is asked for, what is known fills the chart.
    const known = samples.length ? (until - samples[0][0]) / 1000 : 0;
    const span = Math.min(longest, Math.max(60, known));
    const since = until - span * 1000;
    const values = [];
    samples.forEach((sample, place) => {
      if (sample[0] >= since) values.push({ at: sample[0], values: series.map((s) => s.value(sample, samples[place - 1])) });
    });
    const top = ceiling(Math.max(0, ...values.flatMap((v) => v.values)));
    drawn = values.map((v) => ({ ...v, x: ((v.at - since) / (span * 1000)) * WIDTH }));
    const y = (value) => (HEIGHT - 4 - (value / top) * (HEIGHT - 12)).toFixed(1);
    const lines = [0.25, 0.5, 0.75].map((part) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part }));
    const shape = (s, part) => {
      const points = part.join(" L");
      const [begin, end] = [part[0], part[part.length - 1]].map((point) => point.split(",")[0]);
      return [
        svg("path", { class: `area ${s.look}`, d: `M${begin},${HEIGHT} L${points} L${end},${HEIGHT} Z` }),
        svg("path", { class: `line ${s.look}`, d: `M${points}` }),
      ];
    };
    const shapes = series.map((s, n) => {
      const parts = [[]];
      for (const point of drawn) {
        if (point.values[n] === null) parts.push([]);
        else parts[parts.length - 1].push(`${point.x.toFixed(1)},${y(point.values[n])}`);
      }
      return parts.filter((part) => part.length).map((part) => shape(s, part));
    });
    replace(picture, lines, shapes);
    high.textContent = format(top);
    first.textContent = clock(new Date(since), span < 3600);
    last.textContent = clock(new Date(until));
    describe(drawn.length - 1);
  }

  return { element, draw };
}

/** A small chart of counts for a row of a table; `name` says what it shows. */
export function spark(values, name) {
  const top = Math.max(1, ...values);
  const step = 120 / (values.length - 1);
  const points = values.map((value, place) => `${(place * step).toFixed(1)},${(23 - (value / top) * 21).toFixed(1)}`).join(" L");
  return svg(
    "svg",
    { class: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", role: "img", "aria-label": name },
    svg("path", { class: "area done", d: `M0,24 L${points} L120,24 Z` }),
    svg("path", { class: "line done", d: `M${points}` }),
  );
}
