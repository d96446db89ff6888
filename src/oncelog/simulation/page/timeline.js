"use strict";
// Draws the part of the timeline that is in view. Where everything stands was decided when the page
// was written; heights (y) are absolute, widths follow from the lanes that are shown.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [T, Y, KIND, LANES, LABELS, SHAPE, TONE, FIELDS, KEYS, FATE] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const AXIS_PX = 84, HEAD_PX = 42, AROUND_PX = 400, CHAR_PX = 6.4, LINKS_MAX = 24;
  const WIDTHS_PX = { fault: 190, broker: 160, client: 220, partition: 170 };
  const MARK_X = { fault: 14, broker: 34, client: 46, partition: 14 };
  const { events, lanes, spans, bands, findings } = data;
  const $ = (id) => document.getElementById(id);
  const scroll = $("scroll"), stage = $("stage"), lines = $("lines"), axis = $("axis"), tip = $("tip");

  const byKey = new Map();
  events.forEach((event, i) => event[KEYS].forEach((key) => {
    if (!byKey.has(key)) byKey.set(key, []);
    byKey.get(key).push(i);
  }));
  const all = new Set(findings.flatMap((finding) => finding.events));
  const view = { hidden: new Set(), narrow: false, dims: false, chosen: -1, near: new Set(), link: [], pinned: -1 };
  let left = [], total = 0, drawn = [1, 0], wide = 1;
  const widthOf = (lane) => Math.round(WIDTHS_PX[lanes[lane].kind] * wide);

  // --- text -----------------------------------------------------------------------------

  const SPECIAL = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  const esc = (text) => String(text).replace(/[&<>"']/g, (c) => SPECIAL[c]);
  const cut = (text, px) => {
    const room = Math.max(1, Math.floor(px / CHAR_PX));
    return text.length > room ? text.slice(0, room - 1) + "…" : text;
  };

  // --- lanes ----------------------------------------------------------------------------

  function matteringLanes() {
    const found = new Set();
    lanes.forEach((lane, i) => { if (lane.kind === "fault" || lane.kind === "broker") found.add(i); });
    focus().forEach((i) => events[i][LANES].forEach((lane) => found.add(lane)));
    return found;
  }

  function place() {
    const kept = view.narrow ? matteringLanes() : null;
    left = [];
    total = AXIS_PX;
    lanes.forEach((lane, i) => {
      const shown = !view.hidden.has(i) && (!kept || kept.has(i));
      left[i] = shown ? total : -1;
      if (shown) total += widthOf(i);
    });
    stage.style.width = $("heads").style.width = `${total}px`;
    stage.style.height = `${data.height}px`;
    $("heads").innerHTML = `<div id="corner">time</div>` + lanes.map((lane, i) => left[i] < 0 ? "" :
      `<button type="button" class="head ${lane.kind}" data-lane="${i}" style="left:${left[i]}px;width:${widthOf(i)}px"` +
      ` title="${esc(lane.name)} ${esc(lane.note)}: click to hide"><b>${esc(lane.name)}</b><small>${esc(lane.note)}</small></button>`).join("");
    $("hidden").innerHTML = [...view.hidden].map((i) =>
      `<button type="button" data-lane="${i}" title="Show this lane again">+ ${esc(lanes[i].name)}</button>`).join("");
    draw(true);
  }

  // --- what matters ---------------------------------------------------------------------

  const focus = () => view.chosen >= 0 ? chosenEvents[view.chosen] : all;
  const chosenEvents = findings.map((finding) => new Set(finding.events));
  const spanKeys = (set) => {
    const keys = new Set();
    set.forEach((i) => events[i][KEYS].forEach((key) => keys.add(key)));
    return keys;
  };
  const keysOf = new Map();
  const focusKeys = () => {
    if (!keysOf.has(view.chosen)) keysOf.set(view.chosen, spanKeys(focus()));
    return keysOf.get(view.chosen);
  };

  // --- drawing --------------------------------------------------------------------------

  const SHAPES = {
    dot: (x, y) => `<circle class="shape" cx="${x}" cy="${y}" r="3.6"/>`,
    ring: (x, y) => `<circle class="shape hollow" cx="${x}" cy="${y}" r="3.4"/>`,
    cross: (x, y) => `<path class="shape stroke" d="M${x - 4} ${y - 4}l8 8m0-8l-8 8"/>`,
    plus: (x, y) => `<path class="shape stroke" d="M${x - 4} ${y}h8m-4-4v8"/>`,
    diamond: (x, y) => `<path class="shape" d="M${x} ${y - 5}l5 5l-5 5l-5-5z"/>`,
    square: (x, y) => `<rect class="shape" x="${x - 3.5}" y="${y - 3.5}" width="7" height="7"/>`,
    triangle: (x, y) => `<path class="shape" d="M${x - 4.4} ${y - 3.4}h8.8l-4.4 7.4z"/>`,
    caret: (x, y) => `<path class="shape stroke" d="M${x - 3} ${y - 4}l5 4l-5 4"/>`,
    bolt: (x, y) => `<path class="shape" d="M${x + 1} ${y - 6}l-5 7h3.4l-1 5l5-7h-3.4z"/>`,
    bang: (x, y) => `<path class="shape stroke" d="M${x} ${y - 5}v6m0 3.4v.6"/>`,
    flag: (x, y) => `<path class="shape" d="M${x - 3} ${y + 5}v-10l8 2.6l-8 2.8"/>`,
  };

  function firstAt(y) {
    let low = 0, high = events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (events[middle][Y] < y) low = middle + 1; else high = middle;
    }
    return low;
  }

  function markSvg(i) {
    const event = events[i], set = focus();
    const isHot = set.has(i), isNear = view.near.has(i);
    const dim = view.dims && !isHot && !isNear && event[TONE] !== "fault" && lanes[event[LANES][0]].kind !== "broker";
    let out = "";
    event[LANES].forEach((lane, n) => {
      if (left[lane] < 0) return;
      const kind = lanes[lane].kind, x = left[lane] + MARK_X[kind], y = event[Y];
      const room = widthOf(lane) - MARK_X[kind] - 16;
      const marked = isHot || isNear ? `<circle class="halo" cx="${x}" cy="${y}" r="7"/>` : "";
      out += `<g class="mark ${event[TONE]}${dim ? " dim" : ""}${isHot ? " hot" : ""}${isNear ? " near" : ""}" data-i="${i}">` +
        `<rect class="area" x="${x - 9}" y="${y - 6.5}" width="${room + 18}" height="13"/>${marked}${SHAPES[event[SHAPE]](x, y)}` +
        `<text x="${x + 11}" y="${y}">${esc(cut(event[LABELS][n] || "", room))}</text></g>`;
    });
    return out;
  }

  function spanSvg(span, n) {
    const [lane, slot, top, bottom, tone, , key] = span;
    if (left[lane] < 0) return "";
    const height = Math.max(bottom - top, 4), x = left[lane] + (slot ? 26 : 9), width = slot ? 7 : 10;
    const isHot = key >= 0 && focus().size > 0 && focusKeys().has(key);
    const dim = view.dims && !isHot && lanes[lane].kind === "client";
    const start = `<g class="span ${tone}${isHot && tone !== "ending" ? " hot" : ""}${dim ? " dim" : ""}" data-span="${n}">`;
    if (tone === "dead") {
      const middle = x + width / 2;
      return `${start}<rect class="wash" x="${left[lane] + 1}" y="${top}" width="${widthOf(lane) - 1}" height="${height}"/>` +
        `<line x1="${middle}" x2="${middle}" y1="${top}" y2="${bottom}"/></g>`;
    }
    return `${start}<rect x="${x}" y="${top}" width="${width}" height="${height}"/></g>`;
  }

  function bandSvg(band, n, y0) {
    const [at, until, label, met] = band;
    const ids = met.length ? [0, ...met] : lanes.map((_, i) => i);
    const strikes = until - at < 1;
    // Lines stand above the marks of their moment, so that labels stay free.
    const top = at - 7, bottom = Math.max(until, at) + 7;
    let out = "";
    ids.forEach((lane) => {
      if (left[lane] < 0) return;
      const x = left[lane], width = widthOf(lane);
      if (!strikes) out += `<rect x="${x}" y="${top}" width="${width}" height="${bottom - top}"/>`;
      out += `<line class="${strikes ? "strike" : ""}" x1="${x}" x2="${x + width}" y1="${top}" y2="${top}"/>`;
      if (!strikes) out += `<line x1="${x}" x2="${x + width}" y1="${bottom}" y2="${bottom}"/>`;
    });
    // A long band tells its name again where its beginning is out of view.
    if (!strikes && left[0] >= 0 && top < y0 + AROUND_PX && bottom > y0 + AROUND_PX + 60) {
      out += `<text x="${left[0] + 8}" y="${y0 + AROUND_PX + HEAD_PX + 14}">${esc(cut(label, widthOf(0) - 14))}</text>`;
    }
    return `<g class="band" data-band="${n}">${out}</g>`;
  }

  function gridSvg(y0, y1) {
    let out = "";
    lanes.forEach((lane, i) => {
      if (left[i] < 0) return;
      if (i % 2) out += `<rect class="shade" x="${left[i]}" y="${y0}" width="${widthOf(i)}" height="${y1 - y0}"/>`;
      out += `<line class="grid" x1="${left[i]}" x2="${left[i]}" y1="${y0}" y2="${y1}"/>`;
    });
    data.pauses.forEach(([top, bottom]) => {
      if (bottom < y0 || top > y1) return;
      const middle = (top + bottom) / 2;
      out += `<line class="pause-line" x1="${AXIS_PX}" x2="${total}" y1="${middle}" y2="${middle}"/>`;
    });
    return out;
  }

  function linkSvg() {
    const shown = view.link.filter((i) => left[events[i][LANES].at(-1)] >= 0 || left[events[i][LANES][0]] >= 0);
    if (shown.length < 2 || shown.length > LINKS_MAX) return "";
    const points = shown.flatMap((i) => events[i][LANES].filter((lane) => left[lane] >= 0)
      .map((lane) => `${left[lane] + MARK_X[lanes[lane].kind]},${events[i][Y]}`));
    return `<polyline class="link" points="${points.join(" ")}"/>`;
  }

  const PATTERNS = `<defs><pattern id="slant" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
    `<rect width="2.6" height="5" style="fill:var(--abort);stroke:none"/></pattern><pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse">` +
    `<circle cx="2.5" cy="2.5" r="1.4" style="fill:var(--unknown)"/></pattern></defs>`;

  function axisSvg(y0, y1) {
    let out = `<rect x="0" y="${y0}" width="${AXIS_PX}" height="${y1 - y0}"/><line x1="${AXIS_PX}" x2="${AXIS_PX}" y1="${y0}" y2="${y1}"/>`;
    data.ticks.forEach(([y, label]) => {
      if (y >= y0 && y <= y1) out += `<text x="${AXIS_PX - 10}" y="${y + 4}">${esc(label)}</text><line x1="${AXIS_PX - 6}" x2="${AXIS_PX}" y1="${y}" y2="${y}"/>`;
    });
    data.pauses.forEach(([top, bottom, seconds]) => {
      const y = (top + bottom) / 2;
      if (seconds >= 1 && y >= y0 && y <= y1) out += `<text class="pause" x="${AXIS_PX - 10}" y="${y + 4}">… ${seconds.toFixed(1)} s</text>`;
    });
    return out;
  }

  function draw(force) {
    const top = scroll.scrollTop, bottom = top + scroll.clientHeight;
    if (!force && top >= drawn[0] + AROUND_PX / 4 && bottom <= drawn[1] - AROUND_PX / 4) return;
    const y0 = Math.max(0, top - AROUND_PX), y1 = Math.min(data.height, bottom + AROUND_PX);
    drawn = [y0 === 0 ? -AROUND_PX : y0, y1 === data.height ? Infinity : y1];
    let out = PATTERNS + gridSvg(y0, y1);
    bands.forEach((band, n) => { if (band[1] >= y0 && band[0] <= y1) out += bandSvg(band, n, top - AROUND_PX); });
    spans.forEach((span, n) => { if (span[3] >= y0 && span[2] <= y1) out += spanSvg(span, n); });
    if (view.chosen >= 0) {
      const y = findings[view.chosen].y;
      out += `<line class="moment" x1="${AXIS_PX}" x2="${total}" y1="${y}" y2="${y}"/>`;
    }
    out += linkSvg();
    for (let i = firstAt(y0); i < events.length && events[i][Y] <= y1; i++) out += markSvg(i);
    sized(lines, y0, y1, total).innerHTML = out;
    lines.style.top = `${y0}px`;
    sized(axis, y0, y1, AXIS_PX).innerHTML = axisSvg(y0, y1);
    axis.style.transform = `translateY(${y0}px)`;
  }

  function sized(svg, y0, y1, width) {
    svg.setAttribute("width", width);
    svg.setAttribute("height", y1 - y0);
    svg.setAttribute("viewBox", `0 ${y0} ${width} ${y1 - y0}`);
    return svg;
  }

  let waiting = false;
  function drawSoon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(false); });
  }

  // --- details --------------------------------------------------------------------------

  function row(list, name, text) {
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = name;
    value.textContent = text;
    list.append(term, value);
  }

  function fill(title, rows, note) {
    tip.replaceChildren();
    const head = document.createElement("h2"), list = document.createElement("dl");
    head.textContent = title;
    rows.forEach(([name, text]) => row(list, name, text));
    tip.append(head, list);
    if (note) {
      const last = document.createElement("p");
      last.textContent = note;
      tip.append(last);
    }
    tip.hidden = false;
  }

  function tellEvent(i) {
    const event = events[i], kind = data.kinds[event[KIND]];
    const rows = [["at", `${event[T].toFixed(6)} s`], ["who", lanes[event[LANES][0]].name]];
    kind.fields.forEach((name, n) => rows.push([name.replace(/_/g, " "), event[FIELDS][n]]));
    fill(kind.name, rows, event[FATE]);
  }

  function tellTarget(target) {
    if (target.dataset.i !== undefined) tellEvent(+target.dataset.i);
    else if (target.dataset.span !== undefined) fill(spans[target.dataset.span][5], [["lane", lanes[spans[target.dataset.span][0]].name]], "");
    else fill(bands[target.dataset.band][2], [["fault", bands[target.dataset.band][4]]], "");
  }

  function moveTip(x, y) {
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18}px`;
  }

  function related(i) {
    const found = new Set();
    if (i >= 0 && events[i][KEYS].length <= 40) events[i][KEYS].forEach((key) => byKey.get(key).forEach((other) => found.add(other)));
    return found;
  }

  function pin(i) {
    view.pinned = view.pinned === i ? -1 : i;
    view.near = related(view.pinned);
    const first = view.pinned < 0 ? undefined : events[view.pinned][KEYS][0];
    view.link = first === undefined ? [] : byKey.get(first);
    tip.classList.toggle("pinned", view.pinned >= 0);
    if (view.pinned < 0) tip.hidden = true;
    draw(true);
  }

  lines.addEventListener("mousemove", (move) => {
    if (view.pinned >= 0) return;
    const target = move.target.closest("[data-i],[data-span],[data-band]");
    if (!target) { tip.hidden = true; return; }
    tellTarget(target);
    moveTip(move.clientX, move.clientY);
  });
  lines.addEventListener("mouseleave", () => { if (view.pinned < 0) tip.hidden = true; });
  lines.addEventListener("click", (click) => {
    const target = click.target.closest("[data-i]");
    if (!target) { if (view.pinned >= 0) pin(view.pinned); return; }
    tellEvent(+target.dataset.i);
    pin(+target.dataset.i);
    moveTip(click.clientX, click.clientY);
  });

  // --- going to places ------------------------------------------------------------------

  function show(y, lane) {
    const x = lane === undefined || left[lane] < 0 ? null : left[lane];
    scroll.scrollTop = Math.max(0, y - scroll.clientHeight / 2);
    if (x !== null && (x < scroll.scrollLeft + AXIS_PX || x + 200 > scroll.scrollLeft + scroll.clientWidth)) {
      scroll.scrollLeft = Math.max(0, x - scroll.clientWidth / 2);
    }
    draw(true);
  }

  const rows = [...document.querySelectorAll("tr[data-finding]")];
  function choose(index) {
    view.chosen = index;
    view.dims = true;
    $("matters").checked = true;
    rows.forEach((found) => found.classList.toggle("chosen", +found.dataset.finding === index));
    place();
    const at = findings[index].at;
    show(findings[index].y, at === null ? undefined : events[at][LANES].at(-1));
  }

  function step(by) {
    if (!rows.length) return;
    const now = rows.findIndex((found) => +found.dataset.finding === view.chosen);
    const next = rows[(now + by + rows.length + (now < 0 && by < 0 ? 1 : 0)) % rows.length];
    choose(+next.dataset.finding);
    next.scrollIntoView({ block: "nearest" });
  }

  rows.forEach((found) => found.addEventListener("click", (click) => {
    click.preventDefault();
    history.replaceState(null, "", `#finding-${found.dataset.finding}`);
    choose(+found.dataset.finding);
  }));

  let hits = [], hit = -1, asked = "";
  function find() {
    const words = $("search").value.trim().toLowerCase();
    if (words !== asked) {
      asked = words;
      hit = -1;
      hits = !words ? [] : events.flatMap((event, i) =>
        `${data.kinds[event[KIND]].name} ${event[LABELS].join(" ")} ${event[FIELDS].join(" ")}`.toLowerCase().includes(words) ? [i] : []);
    }
    if (hits.length) {
      hit = (hit + 1) % hits.length;
      view.near = new Set([hits[hit]]);
      show(events[hits[hit]][Y], events[hits[hit]][LANES][0]);
    }
    $("hits").textContent = !words ? "" : hits.length ? `${hit + 1} of ${hits.length}` : "nothing";
  }

  // --- controls -------------------------------------------------------------------------

  $("matters").addEventListener("change", (change) => {
    view.dims = change.target.checked;
    if (!view.dims) {
      view.chosen = -1;
      rows.forEach((found) => found.classList.remove("chosen"));
    }
    place();
  });
  $("narrow").addEventListener("change", (change) => { view.narrow = change.target.checked; place(); });
  $("width").addEventListener("input", (input) => { wide = input.target.value / 100; place(); });
  $("next").addEventListener("click", () => step(1));
  $("previous").addEventListener("click", () => step(-1));
  $("search").addEventListener("keydown", (key) => { if (key.key === "Enter") find(); });
  const toggle = (click) => {
    const button = click.target.closest("[data-lane]");
    if (!button) return;
    const lane = +button.dataset.lane;
    if (!view.hidden.delete(lane)) view.hidden.add(lane);
    place();
  };
  $("heads").addEventListener("click", toggle);
  $("hidden").addEventListener("click", toggle);
  document.addEventListener("keydown", (key) => {
    if (key.target.tagName === "INPUT" && key.target.type === "search") return;
    if (key.ctrlKey || key.metaKey || key.altKey) return;
    if (key.key === "n") step(1);
    else if (key.key === "p") step(-1);
    else if (key.key === "Escape" && view.pinned >= 0) pin(view.pinned);
  });
  $("copy").addEventListener("click", async () => {
    const text = $("command").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page opened from a file may not use the clipboard: select the text and ask the document.
      getSelection().selectAllChildren($("command"));
      document.execCommand("copy");
    }
    $("copy").textContent = "Copied";
    setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
  });
  scroll.addEventListener("scroll", drawSoon, { passive: true });
  addEventListener("resize", () => draw(true));

  // --- the legend, in the shapes that are drawn ------------------------------------------

  const LEGEND = [
    ["ring", "sent", "record handed to the producer"], ["dot", "ack", "record acknowledged"], ["triangle", "poll", "records polled"],
    ["diamond", "open", "step of a transaction"], ["diamond", "commit", "committed"], ["diamond", "abort", "aborted"],
    ["diamond", "unknown", "outcome unknown to the client"], ["square", "group", "joined, or owns partitions"],
    ["caret", "group", "offsets committed"], ["caret", "quiet", "position, offsets asked"], ["cross", "bad", "refused, fenced, failed, died"],
    ["plus", "quiet", "producer id, topic change"], ["bolt", "fault", "fault"], ["bang", "fault", "warning in a log"],
    ["triangle", "life", "broker serves"], ["flag", "quiet", "state of a client"],
  ];
  const BARS = [["commit", "transaction, committed"], ["abort", "transaction, aborted"], ["unknown", "transaction, outcome unknown"],
    ["open", "transaction left open"], ["even", "membership of a group, one bar per generation"], ["alive", "life of a broker"], ["dead", "broker is down"]];
  $("shapes").innerHTML = LEGEND.map(([shape, tone, text]) =>
    `<div><svg width="18" height="16"><g class="mark ${tone}">${SHAPES[shape](9, 8)}</g></svg>${text}</div>`).join("") +
    BARS.map(([tone, text]) => `<div><svg width="18" height="16"><g class="span ${tone}"><rect class="${tone === "dead" ? "wash" : ""}" x="4" y="1" width="10" height="14"/></g></svg>${text}</div>`).join("") +
    `<div><svg width="18" height="16"><g class="mark hot"><circle class="halo" cx="9" cy="8" r="6"/></g></svg>belongs to a finding</div>`;

  // Many lanes begin narrow: two screens of them at most, as far as labels allow.
  const lanesPx = lanes.reduce((sum, lane) => sum + WIDTHS_PX[lane.kind], 0);
  wide = Math.max(0.65, Math.min(1, (2 * innerWidth) / lanesPx));
  $("width").value = Math.round(wide * 100);
  $("findings").classList.toggle("empty", !findings.length);
  place();
  const asking = /^#finding-(\d+)$/.exec(location.hash);
  if (asking && findings[+asking[1]]) choose(+asking[1]);
})();
