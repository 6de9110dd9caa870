// The differential flame graph: selected visits above typical ones, on one scale, coloured by the difference.
// `page` has the data, and page.js's functions for drawing.
function flameGraph(page) {
  const { D, V, CONDENSED, HATCH, MIN_SAMPLES, $, element, svg, hatch, weight, count, plural } = page;
  const WIDTH = 1100, ROW = 19, LEAST = 0.6, MOST_ROWS = 60;
  // With fewer visits no error is shown.
  const MIN_VISITS = 8;
  const SIDES = ["picked", "typical"];
  let root = null, zoomed = [], focused = null;

  const node = (name, part) => ({ name, part, children: new Map(), now: 0, touched: false,
    picked: { sum: 0, squares: 0, samples: 0, waits: 0 }, typical: { sum: 0, squares: 0, samples: 0, waits: 0 } });
  function child(of, key, name, part) {
    if (!of.children.has(key)) of.children.set(key, node(name, part));
    return of.children.get(key);
  }

  // Weights of visit i by path: [frames, weight, samples, waits, part of a wait].
  function rows(i) {
    const paths = new Map(), blocked = new Map(), found = [];
    const { at, part, path, ns, waits } = D.flame.waits;
    for (let k = at.length ? at[i] : 0; at.length && k < at[i + 1]; k++) {
      if (!blocked.has(part[k])) blocked.set(part[k], []);
      blocked.get(part[k]).push([D.flame.paths[path[k]], ns[k], waits[k]]);
    }
    if (D.flame.at.length) {
      for (let k = D.flame.at[i]; k < D.flame.at[i + 1]; k++) {
        const path = D.flame.paths[D.flame.path[k]], leaf = path[path.length - 1];
        if (!paths.has(leaf)) paths.set(leaf, []);
        paths.get(leaf).push([path, D.flame.samples[k]]);
      }
    }
    for (let k = D.sums.at[i]; k < D.sums.at[i + 1]; k++) {
      const part = D.sums.part[k], of = D.sums.counted[k], samples = D.sums.samples[k];
      if (D.parts[part].state) {
        // A wait is shown under the stack that blocked, if that is known.
        let rest = of, others = samples;
        for (const [path, ns, n] of blocked.get(part) || []) {
          found.push([path, ns, 0, n, part]);
          rest -= ns;
          others -= n;
        }
        if (others > 0) found.push([[part], Math.max(rest, 0), 0, others, part]);
        continue;
      }
      // A function's weight is divided in proportion to its samples; samples without a path count for the function
      // alone.
      let left = samples;
      for (const [path, n] of paths.get(part) || []) {
        found.push([path, of * n / samples, n, 0, null]);
        left -= n;
      }
      if (left > 0) found.push([[part], of * left / samples, left, 0, null]);
    }
    return found;
  }

  function add(visits, side) {
    const numbers = new Map();
    for (const i of visits) {
      if (V.flags[i] >>> CONDENSED & 1) continue;
      const p = V.probe[i];
      numbers.set(p, (numbers.get(p) || 0) + 1);
      const touched = [];
      const into = (it, w, samples, waits) => {
        if (!it.touched) touched.push(it);
        it.touched = true;
        it.now += w;
        it[side].samples += samples;
        it[side].waits += waits;
      };
      const probe = child(root, "p" + p, D.probes[p] ? D.probes[p].label : "-", null);
      for (const [path, w, samples, waits, wait] of rows(i)) {
        let at = probe;
        into(at, w, samples, waits);
        for (const part of path) {
          const { name, module } = D.parts[part];
          at = child(at, "f" + name + "\n" + module, name, part);
          into(at, w, samples, waits);
        }
        if (wait !== null) {
          const { state } = D.parts[wait];
          into(child(at, "s" + state, "[" + state + "]", wait), w, samples, waits);
        }
      }
      for (const it of touched) {
        it[side].sum += it.now;
        it[side].squares += it.now * it.now;
        it.now = 0;
        it.touched = false;
      }
    }
    return numbers;
  }

  // Converts sums over the n visits of a probe to a mean and its standard error, each probe with its share of the
  // selected visits.
  function finish(it, side, n, share) {
    const sums = it[side], mean = n ? sums.sum / n : 0;
    sums.mean = share * mean;
    sums.error = n < MIN_VISITS ? null : share * Math.sqrt(Math.max(0, sums.squares / n - mean * mean) / (n - 1));
    for (const below of it.children.values()) finish(below, side, n, share);
  }

  function build(picked, typical) {
    root = node("all", null);
    const numbers = { picked: add(picked, "picked"), typical: add(typical, "typical") };
    let whole = 0;
    for (const n of numbers.picked.values()) whole += n;
    for (const side of SIDES) {
      for (const [key, it] of root.children) {
        const p = Number(key.slice(1)), share = (numbers.picked.get(p) || 0) / (whole || 1);
        finish(it, side, numbers[side].get(p) || 0, share);
      }
      const probes = [...root.children.values()].map((it) => it[side]);
      const sum = (of) => probes.reduce((all, it) => all + of(it), 0);
      const known = probes.every((it) => it.error !== null);
      Object.assign(root[side], { mean: sum((it) => it.mean), samples: sum((it) => it.samples), waits: sum((it) => it.waits),
        error: known ? Math.sqrt(sum((it) => it.error ** 2)) : null });
    }
    // With a single probe no row for all is needed.
    if (root.children.size === 1) root = [...root.children.values()][0];
    const visits = { picked: 0, typical: 0 };
    for (const side of SIDES) for (const n of numbers[side].values()) visits[side] += n;
    return visits;
  }

  const widest = (it) => Math.max(it.picked.mean, it.typical.mean);
  const difference = (it) => it.picked.mean - it.typical.mean;
  // Waits are observed; time on the CPU needs a minimum number of samples to be shown.
  const known = (it) => it.picked.waits + it.typical.waits > 0 || Math.max(it.picked.samples, it.typical.samples) >= MIN_SAMPLES;
  function margin(it) {
    const { picked: { error: a }, typical: { error: b } } = it;
    return a === null || b === null ? null : 1.96 * Math.sqrt(a * a + b * b);
  }

  function evidence(side) {
    const parts = [];
    if (side.samples || !side.waits) parts.push(plural(side.samples, "sample"));
    if (side.waits) parts.push(plural(side.waits, "wait"));
    return parts.join(", ");
  }
  function said(side) {
    if (!side.waits && !side.samples) return "no sample";
    const few = !side.waits && side.samples > 0 && side.samples < MIN_SAMPLES;
    const error = side.error === null ? "" : ` ± ${weight(1.96 * side.error)}`;
    return few ? `- (too few: ${evidence(side)})` : `${weight(side.mean)}${error} (${evidence(side)})`;
  }
  function describe(it) {
    const by = difference(it), error = margin(it);
    const more = !known(it) ? "- (too few samples)"
      : `${by > 0 ? "+" : ""}${weight(by)}` + (error === null ? " (too few visits for an interval)" : ` (${weight(by - error)} .. ${weight(by + error)})`);
    const module = it.part === null ? "" : D.parts[it.part].module;
    return `${it.name}${module ? " (" + module + ")" : ""}: selected ${said(it.picked)}, typical ${said(it.typical)}, difference ${more}; per visit, 95 %`;
  }

  function colour(it, most) {
    const by = difference(it), error = margin(it);
    if (!known(it) || error === null || Math.abs(by) <= error) return "var(--flame)";
    const strength = 12 + 48 * Math.sqrt(Math.min(1, Math.abs(by) / most));
    return `color-mix(in srgb, var(${by > 0 ? "--slow" : "--typical"}) ${strength.toFixed(0)}%, var(--flame))`;
  }

  const sorted = (it) => [...it.children].sort((a, b) => widest(b[1]) - widest(a[1]) || (a[0] < b[0] ? -1 : 1));

  // The frames of one side, from the root or the frame zoomed to.
  function drawSide(side, from, scale, most) {
    const rows = [];
    let cut = false;
    const place = (it, keys, x, depth) => {
      const width = it[side].mean * scale;
      if (width < LEAST) return;
      if (depth >= MOST_ROWS) { cut = true; return; }
      (rows[depth] ||= []).push({ it, keys, x, width });
      let at = x;
      for (const [key, below] of sorted(it)) {
        place(below, [...keys, key], at, depth + 1);
        at += below[side].mean * scale;
      }
    };
    // Frames around the zoomed one keep their place above it, over the whole width.
    let at = root;
    from.keys.forEach((key, depth) => {
      (rows[depth] ||= []).push({ it: at, keys: from.keys.slice(0, depth), x: 0, width: WIDTH, outer: true });
      at = at.children.get(key);
    });
    place(from.it, from.keys, 0, from.keys.length);
    const height = Math.max(rows.length, 1) * ROW + 2;
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "flame", role: "group", "data-side": side,
      "aria-label": `flame graph of ${side === "picked" ? "selected" : "typical"} visits` });
    picture.append(hatch());
    rows.forEach((row, depth) => row.forEach(({ it, keys, x, width, outer }, place) => {
      const y = depth * ROW + 1, shown = Math.max(width - 0.5, 0.4);
      const frame = svg("g", { class: outer ? "frame outer" : "frame", tabindex: "-1", role: "button", "aria-label": describe(it),
        "data-depth": depth, "data-place": place });
      const box = svg("rect", { x, y, width: shown, height: ROW - 1, rx: 1 });
      box.style.fill = outer ? "var(--panel)" : colour(it, most);
      frame.append(svg("title", {}, describe(it)), box);
      if (it.part !== null && it.name.startsWith("[") && D.parts[it.part].state) {
        frame.append(svg("rect", { class: "waiting", x, y, width: shown, height: ROW - 1, fill: `url(#${HATCH})` }));
      }
      const fits = Math.floor((width - 6) / 6.4);
      if (fits >= 3) frame.append(svg("text", { x: x + 3, y: y + 13.5 }, it.name.length > fits ? it.name.slice(0, fits - 1) + "…" : it.name));
      frame.addEventListener("click", () => zoom(keys, frame));
      frame.addEventListener("pointerenter", () => tell(it));
      frame.addEventListener("focus", () => { tell(it); roving(frame); });
      frame.keys = keys;
      picture.append(frame);
    }));
    return { picture, cut, frames: rows.reduce((n, row) => n + row.length, 0) };
  }

  function tell(it) { $("flame-info").textContent = describe(it); }
  function roving(frame) {
    if (focused) focused.setAttribute("tabindex", "-1");
    focused = frame;
    frame.setAttribute("tabindex", "0");
  }
  function zoom(keys, frame) {
    const side = frame ? frame.ownerSVGElement.dataset.side : "picked";
    zoomed = keys;
    render();
    const again = frames(side).find((it) => it.keys.length === keys.length && it.keys.every((key, k) => key === keys[k]));
    if (again) again.focus({ preventScroll: true });
  }
  const frames = (side) => [...$("flame").querySelectorAll(`svg[data-side="${side}"] .frame`)];

  // Arrow keys walk the graph, Enter zooms, Escape shows all; Tab goes from one graph to the next part of the page.
  $("flame").addEventListener("keydown", (event) => {
    const at = event.target.closest(".frame");
    if (!at) return;
    const side = at.ownerSVGElement.dataset.side, all = frames(side), depth = at.keys.length;
    const under = (it) => it.keys.length === depth + 1 && at.keys.every((key, k) => key === it.keys[k]);
    const above = (it) => it.keys.length === depth - 1 && it.keys.every((key, k) => key === at.keys[k]);
    const row = all.filter((it) => it.keys.length === depth), place = row.indexOf(at);
    const other = frames(side === "picked" ? "typical" : "picked");
    const same = (it) => it.keys.join("\0") === at.keys.join("\0");
    const to = { ArrowDown: () => all.find(under), ArrowUp: () => all.find(above), ArrowLeft: () => row[place - 1], ArrowRight: () => row[place + 1],
      Home: () => all[0], o: () => other.find(same) }[event.key];
    if (event.key === "Enter" || event.key === " ") zoom(at.keys, at);
    else if (event.key === "Escape") zoom([], at);
    else if (to) { const next = to(); if (next) next.focus(); }
    else return;
    event.preventDefault();
  });
  $("flame-all").addEventListener("click", () => zoom([], null));

  function render() {
    let it = root, keys = [];
    // Leaves a zoomed frame that the new selection does not have.
    for (const key of zoomed) {
      if (!it.children.has(key)) break;
      it = it.children.get(key);
      keys.push(key);
    }
    zoomed = keys;
    const most = Math.abs(difference(root)) || 1, scale = WIDTH / (widest(it) || 1);
    focused = null;
    const parts = [];
    let drawn = 0;
    for (const [side, name] of [["picked", "Selected"], ["typical", "Typical"]]) {
      const { picture, cut, frames } = drawSide(side, { it, keys }, scale, most);
      drawn += frames;
      parts.push(element("p", { class: "flame-side" }, `${name}: ${said(it[side])} per visit` + (cut ? `; the first ${MOST_ROWS} rows, zoom for more` : "")), picture);
    }
    $("flame").replaceChildren(...parts);
    const first = $("flame").querySelector(".frame");
    if (first) roving(first);
    $("flame").dataset.frames = String(drawn);
    $("flame").dataset.zoom = String(keys.length);
    $("flame-all").hidden = keys.length === 0;
    tell(it);
  }

  return {
    draw(picked, typical) {
      const visits = build(picked, typical);
      $("flame-help").textContent = `Mean per visit of ${D.mean_weight}, both on one scale: the ${count(visits.picked)} selected above ${count(visits.typical)} typical visits. ` +
        (D.flame.paths.length ? "Callers lie above what they called, up to the function of the probe" + (D.flame.waits.path.length ? "; waits under what blocked, the kernel's functions included. " : ". ") : "Functions without callers: call stacks were not recorded (--call-graph fp). ") +
        "Red: selected visits take more, blue: less, the stronger the more; without colour: no more than chance (95 %), or too few samples or visits to tell. Hatched is off the CPU. " +
        "Arrow keys walk, o goes to the other graph, Enter or a click zooms, Escape shows all.";
      render();
    },
  };
}
