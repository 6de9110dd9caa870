"use strict";
// Draws the page from its data. Text of the target is only ever set as text.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const V = D.visits, N = V.id.length;
  const $ = (id) => document.getElementById(id);
  const MOST_ITEMS = 200, MOST_COLUMNS = 150, MOST_FUNCTIONS = 300, TOP = 9, MIN_SAMPLES = 10;

  const PROBE_COLOURS = ["#2f7ed8", "#d98a00", "#2a9d6f", "#b0559d", "#8a6d3b", "#17a2b8", "#7c6bd6", "#a3a300"];
  const PART_COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7"];
  const OTHER = "#8c959f";
  const probeColour = (p) => PROBE_COLOURS[p % PROBE_COLOURS.length];

  // Elements, with text and attributes only.
  function element(name, attributes, ...children) {
    const it = document.createElement(name);
    return fill(it, attributes, children);
  }
  function svg(name, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }
  function fill(it, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) it.setAttribute(key, value);
    for (const child of children) it.append(child);
    return it;
  }

  // Numbers as people read them; what is unknown is a dash.
  function time(ns) {
    if (ns === null || ns === undefined || Number.isNaN(ns)) return "-";
    const sign = ns < 0 ? "-" : "", of = Math.abs(ns);
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (of >= size * 0.9995) return sign + digits(of / size) + " " + unit;
    }
    return sign + of.toFixed(0) + " ns";
  }
  const digits = (x) => x < 9.995 ? x.toFixed(2) : x < 99.95 ? x.toFixed(1) : x.toFixed(0);
  const count = (n) => n.toLocaleString("en-US");
  const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
  // Round numbers from 0 up to the largest, about four.
  function ticks(most) {
    const size = 10 ** Math.floor(Math.log10(most / 2)), step = [5, 2, 1].map((n) => n * size).find((it) => most / it >= 2) || size;
    return Array.from({ length: Math.floor(most / step * (1 + 1e-9)) + 1 }, (_, n) => n * step);
  }
  // Powers of ten, and where these are few 2 and 5 times as much.
  function decades(least, most) {
    const first = Math.floor(Math.log10(least)), last = Math.ceil(Math.log10(most));
    const steps = last - first > 2 ? [1] : [1, 2, 5], found = [];
    for (let power = first; power <= last; power++) found.push(...steps.map((n) => n * 10 ** power));
    return found.filter((it) => it >= least * (1 - 1e-9) && it <= most * (1 + 1e-9));
  }
  function weight(x) {
    if (D.is_time) return time(x);
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(x) >= size) return digits(Math.abs(x) / size).replace(/^/, x < 0 ? "-" : "") + " " + unit;
    }
    return x.toFixed(0);
  }
  // "1.5ms", "200 us", "3s"; a bare number has the unit given.
  function parseTime(text, bare) {
    const found = /^\s*([0-9.]+(?:e[0-9]+)?)\s*(ns|us|µs|ms|s)?\s*$/i.exec(text);
    if (!found || !Number.isFinite(Number(found[1]))) return null;
    const units = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };
    return Number(found[1]) * units[(found[2] || bare).toLowerCase()];
  }
  const partName = (p) => D.parts[p].name + (D.parts[p].state ? " [" + D.parts[p].state + "]" : "");
  // All visits have this flag or none, so it is not listed.
  const NO_MARKS = 1 << D.flags.indexOf("sampled_bounds");
  const flagNames = (flags) => D.flags.filter((_, bit) => (flags & ~NO_MARKS) >>> bit & 1).join(" ");

  // The largest parts of all visits have colours of their own, the same in every figure.
  const total = new Float64Array(D.parts.length);
  for (let i = 0; i < D.sums.part.length; i++) total[D.sums.part[i]] += D.sums.weight[i];
  const ranked = [...total.keys()].sort((a, b) => total[b] - total[a]);
  const colourOf = new Map(ranked.slice(0, TOP).map((part, rank) => [part, PART_COLOURS[rank]]));
  const partColour = (part) => colourOf.get(part) || OTHER;
  const HATCH = "hatch";

  const CONDENSED = D.flags.indexOf("condensed");
  const anySlow = V.slow.some((slow) => slow === 1);

  // The selection: the slow visits, all, or a range.
  let choice = { kind: anySlow ? "slow" : "all" };
  let selected = [], shownItem = null;

  function choose() {
    const inside = {
      slow: (i) => V.slow[i] === 1,
      all: () => true,
      range: (i) => V.duration[i] >= choice.d0 && V.duration[i] <= choice.d1 &&
        V.begin[i] >= choice.t0 && V.begin[i] <= choice.t1,
    }[choice.kind];
    selected = [];
    for (let i = 0; i < N; i++) if (V.counted[i] && inside(i)) selected.push(i);
  }

  // Latency over time: uPlot draws points, a drag selects.
  let plot = null;
  function drawLatency() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const columns = [V.begin.map((ns) => ns / 1e9)];
    const series = [{}];
    const points = (fill) => ({ paths: () => null, points: { show: true, size: 5, space: 0, width: 0, fill, stroke: fill } });
    D.probes.forEach((probe, p) => {
      columns.push(V.duration.map((ns, i) => V.probe[i] === p && V.counted[i] ? Math.max(ns, 1) : null));
      series.push({ label: probe.label, ...points(probeColour(p)) });
    });
    columns.push(V.duration.map((ns, i) => ns !== null && !V.counted[i] ? Math.max(ns, 1) : null));
    series.push({ label: "not counted", ...points(colour("--grey")) });
    const axis = { stroke: colour("--fg"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const box = $("latency");
    box.replaceChildren();
    plot = new uPlot({
      width: box.clientWidth || 1100, height: 300, legend: { show: false },
      scales: { x: { time: false }, y: { distr: 3 } },
      axes: [{ ...axis, label: "time since the trace began, s" },
        { ...axis, size: 76, splits: (_, axis, least, most) => decades(least, most), values: (_, splits) => splits.map(time) }],
      series,
      cursor: { drag: { x: true, y: true, setScale: false }, points: { show: false } },
      hooks: {
        setSelect: [(u) => {
          const { left, top, width, height } = u.select;
          if (width < 3 && height < 3) return;
          const x = (px) => u.posToVal(px, "x") * 1e9, y = (px) => u.posToVal(px, "y");
          // A drag along one axis takes all of the other.
          const wide = width >= 3, high = height >= 3;
          select({
            kind: "range",
            t0: wide ? x(left) : -Infinity, t1: wide ? x(left + width) : Infinity,
            d0: high ? y(top + height) : 0, d1: high ? y(top) : Infinity,
          });
        }],
      },
    }, columns, box);
    box.dataset.points = String(columns.slice(1).reduce((n, ys) => n + ys.filter((y) => y !== null).length, 0));
    box.dataset.dark = String(dark);
  }

  // Histogram of all visits, both axes logarithmic, probes side by side in each bar's place.
  const H = { width: 1100, height: 190, left: 60, right: 10, top: 8, bottom: 34 };
  let hx = null;
  function drawHistogram() {
    const all = D.probes.flatMap((probe) => probe.bars);
    const root = svg("svg", { viewBox: `0 0 ${H.width} ${H.height}`, role: "img", "aria-label": "histogram of durations" });
    $("histogram").replaceChildren(root);
    if (!all.length) return;
    const lo = Math.log10(Math.min(...all.map((bar) => bar[0]))), hi = Math.log10(Math.max(...all.map((bar) => bar[1])));
    const most = Math.max(...all.map((bar) => bar[2]));
    const x = (ns) => H.left + (Math.log10(ns) - lo) / (hi - lo || 1) * (H.width - H.left - H.right);
    const floor = H.height - H.bottom;
    // 1 is not 0: the axis begins below it.
    const y = (n) => floor - (Math.log10(n) + 0.3) / (Math.log10(most) + 0.35) * (floor - H.top);
    hx = (px) => 10 ** (lo + (px - H.left) / (H.width - H.left - H.right) * (hi - lo));
    for (let n = 1; n <= most; n *= 10) {
      root.append(svg("line", { class: "axis", x1: H.left, x2: H.width - H.right, y1: y(n), y2: y(n) }),
        svg("text", { class: "soft", x: H.left - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)));
    }
    for (let power = Math.ceil(lo); power <= hi; power++) {
      root.append(svg("text", { class: "soft", x: x(10 ** power), y: floor + 16, "text-anchor": "middle" }, time(10 ** power)));
    }
    root.append(svg("text", { class: "soft", x: H.width / 2, y: H.height - 3, "text-anchor": "middle" }, "duration"));
    D.probes.forEach((probe, p) => {
      for (const [from, to, n] of probe.bars) {
        const width = (x(to) - x(from)) / D.probes.length;
        const bar = svg("rect", { class: "hbar", x: x(from) + p * width, y: y(n), width: Math.max(width - 1, 1), height: floor - y(n), fill: probeColour(p) });
        bar.append(svg("title", {}, `${probe.label}: ${count(n)} visits of ${time(from)} to ${time(to)}`));
        root.append(bar);
      }
    });
    const band = svg("rect", { id: "band", y: H.top, height: floor - H.top, width: 0, x: 0, fill: "var(--focus)", opacity: 0.2, "pointer-events": "none" });
    root.append(band);
    const at = (event) => {
      const box = root.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width * H.width, H.left), H.width - H.right);
    };
    let from = null;
    const show = (a, b) => fill(band, { x: Math.min(a, b), width: Math.abs(a - b) }, []);
    root.addEventListener("pointerdown", (event) => { from = at(event); root.setPointerCapture(event.pointerId); });
    root.addEventListener("pointermove", (event) => { if (from !== null) show(from, at(event)); });
    root.addEventListener("pointerup", (event) => {
      const to = at(event), begun = from;
      from = null;
      show(0, 0);
      if (begun !== null && Math.abs(to - begun) > 3) {
        const [a, b] = [Math.min(begun, to), Math.max(begun, to)];
        select({ kind: "range", t0: -Infinity, t1: Infinity, d0: hx(a), d1: hx(b) });
      }
    });
  }

  function drawLegend() {
    const entries = D.probes.map((probe, p) => {
      const slow = probe.slow_from === null ? "none slow" : "slow from " + time(probe.slow_from) + (probe.slow_on_cpu ? " on the CPU" : "");
      return swatch(probeColour(p), `${probe.label}: ${count(probe.visits)} visits, median ${time(probe.p50)}, p99 ${time(probe.p99)}, ${slow}`);
    });
    $("legend").replaceChildren(element("div", { class: "legend" }, ...entries));
  }
  function swatch(colour, text) {
    const box = element("i");
    box.style.background = colour;
    return element("span", {}, box, text);
  }

  // Means over visits of what the samples of each part stand for: unbiased even for visits so short that most have no
  // sample. Visits without details are left out. `mix` is the number of visits of each probe to count with, so that
  // equal mixes are compared; without it each visit counts once.
  function means(visits, mix) {
    const probes = new Map();
    for (const i of visits) {
      if (V.flags[i] >>> CONDENSED & 1) continue;
      const p = V.probe[i];
      if (!probes.has(p)) probes.set(p, { n: 0, sums: new Map() });
      const probe = probes.get(p);
      probe.n++;
      for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) {
        const it = probe.sums.get(D.sums.part[k]) || { weight: 0, samples: 0 };
        it.weight += D.sums.counted[k];
        it.samples += D.sums.samples[k];
        probe.sums.set(D.sums.part[k], it);
      }
    }
    let n = 0, whole = 0;
    const own = new Map([...probes].map(([p, probe]) => [p, probe.n])), parts = new Map();
    for (const count of (mix || own).values()) whole += count;
    for (const [p, probe] of probes) {
      n += probe.n;
      const share = ((mix || own).get(p) || 0) / (whole || 1);
      if (share === 0) continue;
      for (const [part, sum] of probe.sums) {
        const it = parts.get(part) || { mean: 0, samples: 0 };
        parts.set(part, { mean: it.mean + share * sum.weight / probe.n, samples: it.samples + sum.samples });
      }
    }
    return { n, mix: own, of: (part) => parts.get(part) || { mean: 0, samples: 0 }, parts: [...parts.keys()] };
  }

  function drawDifference(picked, typical) {
    const box = $("difference");
    const mean = (it, part) => it.of(part).mean;
    const parts = [...new Set([...picked.parts, ...typical.parts])];
    const difference = (part) => mean(picked, part) - mean(typical, part);
    parts.sort((a, b) => Math.abs(difference(b)) - Math.abs(difference(a)));
    // Waits are observed; time on the CPU needs a minimum number of samples to be shown.
    const known = parts.filter((part) => D.parts[part].state || Math.max(picked.of(part).samples, typical.of(part).samples) >= MIN_SAMPLES);
    const few = parts.length - known.length;
    const most = Math.max(1, ...known.map((part) => Math.max(mean(picked, part), mean(typical, part))));
    $("weight").textContent = `Mean per visit of ${D.mean_weight}; red: the ${count(picked.n)} selected, blue: ${count(typical.n)} typical visits ` +
      "(the middle half of their probe that is not slow, and not selected; each probe counts as among the selected). Largest difference first, with samples or waits in brackets." +
      (few ? ` Not shown: ${plural(few, "function")} with fewer than ${MIN_SAMPLES} samples.` : "") +
      (V.flags.some((flags) => flags >>> CONDENSED & 1) ? " The details of most typical visits were not kept, and those kept are not all alike: the report below counts all." : "");
    const rows = [];
    for (const part of known.slice(0, 20)) {
      const bars = element("div", {});
      for (const [kind, it] of [["slow", picked], ["typical", typical]]) {
        const bar = element("div", { class: "bar " + kind });
        bar.style.width = 100 * mean(it, part) / most + "%";
        bars.append(bar);
      }
      const by = difference(part);
      rows.push(element("div", { class: "name" }, partName(part)), bars,
        element("div", { class: by > 0 ? "more" : "less" },
          `${by > 0 ? "+" : ""}${weight(by)}  (${count(picked.of(part).samples)} / ${count(typical.of(part).samples)})`));
    }
    box.replaceChildren(rows.length ? element("div", { class: "bars" }, ...rows)
      : element("p", {}, few ? "Too few samples to tell: record longer, or lower --reset."
        : "No selected visit has functions: none was sampled, or the details were not kept."));
    box.dataset.rows = String(rows.length / 3);
  }

  // The paper's Figure 8: a column an item, its functions stacked.
  function drawStacked() {
    const step = Math.max(1, Math.ceil(selected.length / MOST_COLUMNS));
    const columns = selected.filter((_, k) => k % step === 0);
    $("stacked-help").textContent = "A column is a visit, in order of time; its height is " + D.weight + "." +
      (step > 1 ? ` Every ${step}th of ${count(selected.length)} is shown.` : "");
    const F = { width: 1100, height: 280, left: 70, right: 6, top: 8, bottom: 24 };
    const floor = F.height - F.bottom, wide = (F.width - F.left - F.right) / Math.max(columns.length, 1);
    const heights = columns.map((i) => {
      let sum = 0;
      for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) sum += D.sums.weight[k];
      return sum;
    });
    const most = Math.max(1, ...heights), y = (w) => floor - w / most * (floor - F.top);
    const root = svg("svg", { viewBox: `0 0 ${F.width} ${F.height}`, role: "img", "aria-label": "functions of each selected visit, stacked" });
    root.append(hatch());
    for (const w of ticks(most)) {
      root.append(svg("line", { class: "axis", x1: F.left, x2: F.width - F.right, y1: y(w), y2: y(w) }),
        svg("text", { class: "soft", x: F.left - 6, y: y(w) + 4, "text-anchor": "end" }, weight(w)));
    }
    const met = new Set();
    columns.forEach((i, column) => {
      const group = svg("g", { class: "column", "data-item": V.item[i] });
      group.append(svg("title", {}, `item ${V.item[i]}: ${time(V.duration[i])}`));
      let below = 0, other = 0;
      const block = (w, colour, waits) => {
        if (w <= 0) return;
        const place = { x: F.left + column * wide, y: y(below + w), width: Math.max(wide - (wide > 4 ? 1 : 0), 0.7), height: y(below) - y(below + w) };
        group.append(svg("rect", { ...place, fill: colour }));
        if (waits) group.append(svg("rect", { ...place, fill: `url(#${HATCH})` }));
        below += w;
      };
      const own = new Map();
      for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) {
        if (D.sums.weight[k] > 0) met.add(D.sums.part[k]);
        if (colourOf.has(D.sums.part[k])) own.set(D.sums.part[k], D.sums.weight[k]);
        else other += D.sums.weight[k];
      }
      for (const part of colourOf.keys()) block(own.get(part) || 0, partColour(part), D.parts[part].state !== null);
      block(other, OTHER, false);
      group.addEventListener("click", () => showItem(i, false));
      root.append(group);
    });
    root.append(svg("text", { class: "soft", x: F.width / 2, y: F.height - 5, "text-anchor": "middle" }, "visits in order of time"));
    const legend = [...colourOf.keys()].filter((part) => met.has(part)).map((part) => swatch(partColour(part), partName(part)));
    $("stacked").replaceChildren(root, element("div", { class: "legend" }, ...legend, swatch(OTHER, "others"), element("span", {}, "hatched: off the CPU")));
  }
  function hatch() {
    const pattern = svg("pattern", { id: HATCH, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(svg("rect", { width: 2, height: 5, fill: "var(--bg)", opacity: 0.65 }));
    return svg("defs", {}, pattern);
  }

  // Items, slowest first; arrow keys move, and show.
  function drawItems() {
    const rows = [...selected].sort((a, b) => V.duration[b] - V.duration[a]).slice(0, MOST_ITEMS);
    const names = ["item", "probe", "begin", "duration", "on CPU", "samples", "most time in", ...D.between.map((it) => it.what), ...D.args, "flags"];
    const named = new Set(["probe", "most time in", "flags", ...D.args]);
    head("item-table", names, named);
    const body = $("item-table").tBodies[0];
    body.replaceChildren(...rows.map((i, k) => {
      let top = null;
      for (let at = D.sums.at[i]; at < D.sums.at[i + 1]; at++) {
        if (top === null || D.sums.weight[at] > D.sums.weight[top]) top = at;
      }
      const cells = [V.item[i], D.probes[V.probe[i]] ? D.probes[V.probe[i]].label : "-", time(V.begin[i]), time(V.duration[i]),
        time(V.oncpu[i]), count(V.samples[i]), top === null ? "-" : partName(D.sums.part[top]),
        ...D.between.map((it) => between(it, it.values[i])), ...V.args[i].map((value) => value === null ? "-" : value), flagNames(V.flags[i])];
      const row = element("tr", { tabindex: k === 0 ? "0" : "-1", "data-visit": i },
        ...cells.map((cell, c) => element("td", D.args.includes(names[c]) ? { class: "key", title: String(cell) } : named.has(names[c]) ? { class: "name" } : {}, cell)));
      row.addEventListener("click", () => showItem(i, true));
      return row;
    }));
    if (rows.length) showItem(rows[0], false);
    else { shownItem = null; $("timeline").replaceChildren(); }
  }
  function head(table, names, named) {
    const cells = names.map((name) => element("th", named.has(name) ? { class: "name", scope: "col" } : { scope: "col" }, name));
    $(table).tHead.replaceChildren(element("tr", {}, ...cells));
  }
  $("item-table").tBodies[0].addEventListener("keydown", (event) => {
    const row = event.target.closest("tr"), body = row.parentNode;
    const to = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling, Home: body.firstElementChild, End: body.lastElementChild, Enter: row }[event.key];
    if (!to) return;
    event.preventDefault();
    showItem(Number(to.dataset.visit), true);
  });

  // One item over time: its visits in rows, functions and waits in order.
  function showItem(i, focus) {
    shownItem = i;
    for (const row of $("item-table").tBodies[0].rows) {
      const is = Number(row.dataset.visit) === i;
      row.setAttribute("aria-selected", is);
      row.tabIndex = is ? 0 : -1;
      if (is && focus) row.focus();
    }
    const visits = [], staged = V.passage.length > 0 && V.passage[i] !== null;
    const together = (k) => k === i || (staged ? V.passage[k] === V.passage[i] : D.probes.length > 1 && V.item[k] === V.item[i]);
    for (let k = 0; k < N && visits.length < 12; k++) if (together(k)) visits.push(k);
    if (!visits.includes(i)) visits.push(i);
    const end = (k) => V.begin[k] + (V.duration[k] === null ? 0 : V.duration[k]);
    const from = Math.min(...visits.map((k) => V.begin[k])), to = Math.max(...visits.map(end), from + 1);
    const T = { width: 1100, row: 58, left: 8, right: 8 };
    const x = (ns) => T.left + (ns - from) / (to - from) * (T.width - T.left - T.right);
    const height = visits.length * T.row + 22;
    const root = svg("svg", { viewBox: `0 0 ${T.width} ${height}`, role: "img", "aria-label": `time line of item ${V.item[i]}` });
    root.append(hatch());
    let drawn = 0;
    visits.forEach((k, row) => {
      const top = row * T.row;
      const label = D.probes[V.probe[k]] ? D.probes[V.probe[k]].label : "-";
      root.append(svg("text", { x: T.left, y: top + 14 }, `${label}, thread ${V.tid[k]}, ${time(V.duration[k])}, ${plural(V.samples[k], "sample")}`),
        svg("rect", { x: x(V.begin[k]), y: top + 20, width: Math.max(x(end(k)) - x(V.begin[k]), 1), height: 26, fill: "none", stroke: "var(--soft)" }));
      for (let r = D.runs.at[k]; r < D.runs.at[k + 1]; r++, drawn++) {
        const part = D.runs.part[r], begin = V.begin[k] + D.runs.begin[r];
        const place = { x: x(begin), y: top + 20, width: Math.max(x(begin + D.runs.ns[r]) - x(begin), 0.5), height: 26 };
        const run = svg("rect", { ...place, class: "run", fill: partColour(part) });
        run.append(svg("title", {}, `${partName(part)}: ${time(D.runs.ns[r])} from ${time(D.runs.begin[r])}${ended(r)}`));
        root.append(run);
        if (D.parts[part].state) root.append(svg("rect", { ...place, fill: `url(#${HATCH})`, "pointer-events": "none" }));
      }
    });
    const stages = staged ? drawStages(visits, root, { x, end, row: T.row }) : [];
    for (const ns of ticks(to - from)) {
      const share = ns / (to - from);
      root.append(svg("text", { class: "soft", x: x(from + ns), y: height - 4, "text-anchor": share < 0.03 ? "start" : share > 0.97 ? "end" : "middle" }, time(ns)));
    }
    const words = drawn === 0 ? "It has no samples here: none was taken in it, its details were not kept, or the page has no room for its time line."
      : "Functions change half way between samples; hatched is off the CPU.";
    const parts = [];
    for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) parts.push(k);
    parts.sort((a, b) => D.sums.weight[b] - D.sums.weight[a]);
    const list = parts.slice(0, 10).map((k) => swatch(partColour(D.sums.part[k]),
      `${partName(D.sums.part[k])}: ${weight(D.sums.weight[k])} (${plural(D.sums.samples[k], D.parts[D.sums.part[k]].state ? "wait" : "sample")})`));
    const wakers = element("ul", { class: "wakers" }, ...longestWaits(visits).map((text) => element("li", {}, text)));
    $("timeline").replaceChildren(element("p", { class: "help" }, `Item ${V.item[i]}. ${words}`), ...stages, root, element("div", { class: "legend" }, ...list), ...drawBetween(i), wakers);
    $("timeline").dataset.runs = String(drawn);
  }

  // Interrupts, faults and counted events of a visit, beside the mean of typical visits of its probe.
  const between = (it, value) => value === null || value === undefined ? "-" : it.is_time ? time(value) : count(value);
  const usual = new Map();
  function usually(it, p) {
    const key = it.what + p;
    if (!usual.has(key)) {
      let sum = 0, n = 0;
      for (let i = 0; i < N; i++) {
        if (V.probe[i] !== p || !V.typical[i] || it.values[i] === null) continue;
        sum += it.values[i];
        n++;
      }
      usual.set(key, n ? sum / n : null);
    }
    const mean = usual.get(key);
    if (mean === null) return "-";
    if (it.is_time) return time(mean);
    return mean === 0 || mean >= 1000 ? count(Math.round(mean)) : mean.toFixed(2);
  }
  function drawBetween(i) {
    if (!D.between.length) return [];
    const said = (counted) => D.between.filter((it) => it.is_counted === counted)
      .map((it) => `${it.what} ${between(it, it.values[i])} (typical ${usually(it, V.probe[i])})`).join(", ");
    const parts = [["What came between, part of these times: ", said(false)], ["Counted: ", said(true)]];
    return parts.filter((it) => it[1]).map((it) => element("p", { class: "between" }, it[0] + it[1]));
  }

  // The thread that ended a wait, and the time from then until the waiting thread ran.
  const endings = new Map(D.runs.by.map((it) => [it.run, it]));
  function ended(r) {
    const it = endings.get(r);
    return it ? `, ${it.by}${it.ready === null ? "" : `, of it ready to run ${time(it.ready)}`}` : "";
  }
  function longestWaits(visits) {
    const waits = [];
    for (const k of visits) for (let r = D.runs.at[k]; r < D.runs.at[k + 1]; r++) if (endings.has(r)) waits.push(r);
    waits.sort((a, b) => D.runs.ns[b] - D.runs.ns[a]);
    return waits.slice(0, 5).map((r) => `${partName(D.runs.part[r])}: ${time(D.runs.ns[r])} from ${time(D.runs.begin[r])}${ended(r)}`);
  }

  // Service in each stage, and waiting in none for the next, which is a dashed line before its begin.
  function drawStages(visits, root, { x, end, row }) {
    const parts = [];
    let until = null;
    visits.forEach((k, place) => {
      const label = D.probes[V.probe[k]] ? D.probes[V.probe[k]].label : "-";
      const waited = until === null ? 0 : V.begin[k] - until;
      if (waited > 0) {
        const y = place * row + 33;
        const line = svg("line", { class: "queued", x1: x(until), x2: x(V.begin[k]), y1: y, y2: y });
        line.append(svg("title", {}, `waiting for ${label}: ${time(waited)}`));
        root.append(line);
        parts.push(`waiting ${time(waited)}`);
      }
      parts.push(`${label} ${time(V.duration[k])}`);
      until = Math.max(until === null ? -Infinity : until, end(k));
    });
    return [element("p", { class: "stages" }, "Stages, service and waiting: " + parts.join(" → "))];
  }

  // Functions, with the distribution of their weight over the visits that have them.
  const values = new Map();
  for (let i = 0; i < N; i++) {
    if (!V.counted[i]) continue;
    for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) {
      const part = D.sums.part[k];
      if (!values.has(part)) values.set(part, []);
      values.get(part).push([D.sums.weight[k], i]);
    }
  }
  const BINS = 24;
  const allWeights = D.sums.weight.filter((w) => w > 0);
  let least = Infinity, largest = 1;
  for (const w of allWeights) { least = Math.min(least, w); largest = Math.max(largest, w); }
  least = Math.max(Math.min(least, largest), 1);
  const bin = (w) => Math.min(BINS - 1, Math.max(0, Math.floor(Math.log(Math.max(w, 1) / least) / (Math.log(largest / least) || 1) * BINS)));
  function spark(list, isSelected) {
    const all = new Uint32Array(BINS), picked = new Uint32Array(BINS);
    for (const [w, i] of list) { all[bin(w)]++; if (isSelected[i]) picked[bin(w)]++; }
    const most = Math.log1p(Math.max(...all)), height = (n) => n ? Math.max(2, Math.log1p(n) / most * 20) : 0;
    const root = svg("svg", { viewBox: `0 0 ${BINS * 6} 21`, class: "spark", role: "img", "aria-label": "distribution over visits" });
    root.style.width = BINS * 6 + "px";
    for (let b = 0; b < BINS; b++) {
      if (!all[b]) continue;
      root.append(svg("rect", { x: b * 6, width: 5, y: 21 - height(all[b]), height: height(all[b]), fill: "var(--typical)" }));
      if (picked[b]) root.append(svg("rect", { x: b * 6, width: 5, y: 21 - height(picked[b]), height: height(picked[b]), fill: "var(--slow)" }));
    }
    return root;
  }
  function drawFunctions(picked) {
    const isSelected = new Uint8Array(N);
    for (const i of selected) isSelected[i] = 1;
    const listed = ranked.filter((part) => values.has(part)).slice(0, MOST_FUNCTIONS);
    $("functions-help").textContent = `By their sum over all ${count(N)} visits shown, of ${D.weight}. Small figures: its weight per visit that has it, ` +
      `from ${weight(least)} to ${weight(largest)}, both axes logarithmic; red: selected visits.` +
      (values.size > MOST_FUNCTIONS ? ` The first ${MOST_FUNCTIONS} of ${count(values.size)}.` : "");
    head("functions", ["function", "module", "visits", "samples", "sum", "per selected visit", "distribution"], new Set(["function", "module"]));
    $("functions").tBodies[0].replaceChildren(...listed.map((part) => {
      const list = values.get(part);
      let samples = 0;
      for (const [, i] of list) {
        for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) if (D.sums.part[k] === part) samples += D.sums.samples[k];
      }
      return element("tr", {}, element("td", { class: "name" }, partName(part)), element("td", { class: "name" }, D.parts[part].module),
        element("td", {}, count(list.length)), element("td", {}, count(samples)), element("td", {}, weight(total[part])),
        element("td", {}, picked.n ? weight(picked.of(part).mean) : "-"), element("td", {}, spark(list, isSelected)));
    }));
  }

  function drawLosses() {
    $("losses").replaceChildren(...D.losses.map((it) => element("p", {}, `Loss: ${it.reason}, ${plural(it.ranges, "range")}, ${time(it.ns)} in all`)));
  }

  function select(next) {
    choice = next;
    choose();
    const typicalVisits = [], isSelected = new Set(selected);
    for (let i = 0; i < N; i++) if (V.typical[i] && !isSelected.has(i)) typicalVisits.push(i);
    const picked = means(selected);
    const durations = selected.map((i) => V.duration[i]);
    let low = Infinity, high = -Infinity;
    for (const ns of durations) { low = Math.min(low, ns); high = Math.max(high, ns); }
    const what = { slow: "slow ", all: "", range: "" }[choice.kind];
    $("selected").textContent = `Selected: ${count(selected.length)} ${what}of ${count(N)} visits` +
      (selected.length ? `, ${time(low)} to ${time(high)}` : "");
    const range = choice.kind === "range" ? choice : { d0: low, d1: high, t0: -Infinity, t1: Infinity };
    $("d0").value = Number.isFinite(range.d0) ? time(range.d0) : "";
    $("d1").value = Number.isFinite(range.d1) ? time(range.d1) : "";
    $("t0").value = Number.isFinite(range.t0) ? (range.t0 / 1e9).toFixed(3) + " s" : "";
    $("t1").value = Number.isFinite(range.t1) ? (range.t1 / 1e9).toFixed(3) + " s" : "";
    drawDifference(picked, means(typicalVisits, picked.mix));
    flame.draw(selected, typicalVisits);
    drawStacked();
    drawItems();
    drawFunctions(picked);
  }

  $("pick-slow").addEventListener("click", () => select({ kind: "slow" }));
  $("pick-all").addEventListener("click", () => select({ kind: "all" }));
  $("range").addEventListener("submit", (event) => {
    event.preventDefault();
    const read = (id, unit, unset) => {
      const text = $(id).value.trim(), value = text === "" ? unset : parseTime(text, unit);
      $(id).setCustomValidity(value === null ? "a time, such as 200us, 1.5ms or 2s" : "");
      return value;
    };
    const next = { kind: "range", d0: read("d0", "us", 0), d1: read("d1", "us", Infinity), t0: read("t0", "s", -Infinity), t1: read("t1", "s", Infinity) };
    // A limit that was shown rounded must still include its own visit.
    if (next.d0 !== null && next.d1 !== null) { next.d0 *= 0.995; next.d1 *= 1.005; }
    if ($("range").reportValidity()) select(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawLatency);
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => plot.setSize({ width: $("latency").clientWidth, height: 300 }), 100); });

  const flame = flameGraph({ D, V, CONDENSED, HATCH, MIN_SAMPLES, $, element, svg, hatch, weight, count, plural });
  drawLegend();
  drawLatency();
  drawHistogram();
  drawLosses();
  if (V.flags.some((flags) => flags & NO_MARKS)) $("no-marks").textContent = "Begin and end lie between two samples, as items have no marks.";
  select(choice);
  document.body.dataset.ready = String(N);
})();
