
"use strict";
const all = JSON.parse(document.getElementById("figures").textContent);
const at = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function bytes(n) {
  if (n < 0) return "−" + bytes(-n);
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return (unit === 0 || n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)) + " " + units[unit];
}
function seconds(s) {
  if (s === 0) return "0 s";
  if (s < 1e-3) return (s * 1e6).toFixed(0) + " µs";
  if (s < 1) return (s * 1e3).toFixed(s < 0.1 ? 1 : 0) + " ms";
  return s.toFixed(s < 100 ? 2 : 0) + " s";
}
const percent = (share) => (100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0) + " %";
const count = (n) => n.toLocaleString("en");

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/* The head and the totals. */
at("command").textContent = all.program.join(" ");
document.title = "foretell report: " + all.program.join(" ").slice(0, 80);
at("about").textContent = "in " + all.folder + ", " + new Date(all.began_s * 1000).toLocaleString();
const warnings = [];
if (all.ending === "cut") warnings.push("The recording was cut off: the end of the run is missing.");
if (all.ending === "damaged") warnings.push("The recording is damaged: what comes behind the damage is missing.");
if (all.lost_events > 0) warnings.push(count(all.lost_events) + " events were lost.");
if (warnings.length) { at("warning").hidden = false; at("warning").textContent = warnings.join(" "); }
for (const [value, name] of [
  [seconds(all.elapsed_s), "from first to last event"],
  [seconds(all.stall_s), "waited, over all programs"],
  [count(all.reads.reads), "reads"],
  [bytes(all.reads.bytes), "read"],
  [count(all.names.reads), "names touched"],
  [count(all.files.length + all.other_files), "files and names"],
  ...all.by_origin.filter((one) => one.reads > 0).map((one) => [count(one.reads), "reads seen by " + one.name]),
]) {
  const tile = element("div");
  tile.append(element("b", value), element("span", name));
  at("tiles").append(tile);
}

/* Zoom: the shown part of the run, in µs, and of the file, in bytes; shared by the plots. */
const whole = Math.max(1, all.elapsed_s * 1e6);
const view = { from: 0, to: whole, low: null, high: null };
let chosen = 0;
const inOrder = all.files.map((file, index) => index).filter((index) => all.files[index].points.length > 0).sort((a, b) => all.files[a].first_s - all.files[b].first_s);

function painter(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  paint.clearRect(0, 0, width, height);
  paint.font = "11px system-ui, sans-serif";
  return { paint, width, height };
}
const OFFSETS_LEFT = 64, BOTTOM = 20, TOP = 6, RIGHT = 8;
/* Rows of files have room for the ends of their names. */
const ROWS_LEFT = (width) => Math.round(Math.min(300, Math.max(OFFSETS_LEFT, width * 0.28)));
/* The least distance of two names, in pixels. */
const NAME_EACH = 13;

function step(span, parts) {
  const raw = span / parts, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) || power * 10;
}
function byteStep(span, parts) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, span / parts))));
}
function axes({ paint, width, height }, low, high, LEFT = OFFSETS_LEFT) {
  paint.strokeStyle = colour("line");
  paint.fillStyle = colour("soft");
  paint.lineWidth = 1;
  const x = (us) => LEFT + (us - view.from) / (view.to - view.from) * (width - LEFT - RIGHT);
  const each = step(view.to - view.from, Math.max(2, width / 130));
  paint.textAlign = "center";
  for (let us = Math.ceil(view.from / each) * each; us <= view.to; us += each) {
    paint.beginPath(); paint.moveTo(x(us), TOP); paint.lineTo(x(us), height - BOTTOM); paint.stroke();
    paint.fillText(seconds(us / 1e6), Math.min(x(us), width - 24), height - 6);
  }
  if (high === undefined) return { x };
  const y = (offset) => height - BOTTOM - (offset - low) / (high - low) * (height - BOTTOM - TOP);
  const rows = byteStep(high - low, Math.max(2, height / 60));
  paint.textAlign = "right";
  for (let offset = Math.ceil(low / rows) * rows; offset <= high; offset += rows) {
    paint.beginPath(); paint.moveTo(LEFT, y(offset)); paint.lineTo(width - RIGHT, y(offset)); paint.stroke();
    paint.fillText(bytes(offset), LEFT - 6, y(offset) + 4);
  }
  return { x, y };
}

function bounds() {
  const file = all.files[chosen];
  return [view.low ?? 0, view.high ?? Math.max(1, file ? file.end_bytes : 1)];
}
function drawOffsets() {
  const LEFT = OFFSETS_LEFT;
  const on = painter(at("offsets")), file = all.files[chosen];
  const [low, high] = bounds();
  const { x, y } = axes(on, low, high);
  const { paint, width, height } = on;
  if (!file) return;
  paint.save();
  paint.beginPath(); paint.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM); paint.clip();
  for (const waits of [false, true]) {
    paint.fillStyle = colour(waits ? "stall" : "data");
    for (const [began, ended, start, end, , stall] of file.points) {
      if ((stall > 0) !== waits || ended < view.from || began > view.to) continue;
      const top = y(end), tall = Math.max(2, y(start) - top);
      paint.fillRect(x(began), top, Math.max(2, x(ended) - x(began)), tall);
    }
  }
  paint.restore();
  const joined = file.points.some((point) => point[4] > 1) ? " Marks stand for several reads each." : "";
  at("offsets-note").textContent = count(file.reads) + " reads of " + bytes(file.bytes) + ", seen by " + file.seen_by + "; "
    + percent(file.in_order_share) + " go on where the last one ended, " + count(file.backwards) + " go back; waited "
    + seconds(file.stall_s) + "." + joined;
}
function rowHeight(height) { return (height - TOP - BOTTOM) / Math.max(1, inOrder.length); }
function drawRows() {
  const on = painter(at("rows"));
  const LEFT = ROWS_LEFT(on.width);
  const { x } = axes(on, undefined, undefined, LEFT);
  const { paint, width, height } = on;
  const each = rowHeight(height);
  paint.save();
  paint.beginPath(); paint.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM); paint.clip();
  inOrder.forEach((index, row) => {
    const top = TOP + row * each;
    if (index === chosen) { paint.fillStyle = colour("shade"); paint.fillRect(LEFT, top, width, Math.max(3, each)); }
    for (const waits of [false, true]) {
      paint.fillStyle = colour(waits ? "stall" : "data");
      for (const [began, ended, , , , stall] of all.files[index].points) {
        if ((stall > 0) !== waits || ended < view.from || began > view.to) continue;
        paint.fillRect(x(began), top, Math.max(1.5, x(ended) - x(began)), Math.max(1.2, each * 0.85));
      }
    }
  });
  paint.restore();
  paint.textAlign = "right"; paint.textBaseline = "middle";
  for (const row of namedRows(each)) {
    const index = inOrder[row];
    paint.fillStyle = colour(index === chosen ? "ink" : "soft");
    paint.fillText(shortened(paint, all.files[index].path, LEFT - 10), LEFT - 6, TOP + (row + 0.5) * each);
  }
  paint.textBaseline = "alphabetic";
}
/* The rows that have their names beside them: as many as there is room for, those with the most waiting and bytes first. */
function namedRows(each) {
  const rowOf = new Map(inOrder.map((index, row) => [index, row]));
  const named = [];
  const order = [chosen, ...all.files.keys()];
  for (const index of order) {
    const row = rowOf.get(index);
    if (row === undefined || all.files[index].points.length === 0) continue;
    if (named.every((other) => Math.abs(other - row) * each >= NAME_EACH)) named.push(row);
    if (named.length >= 40) break;
  }
  return named;
}
/* The end of a path, as much as there is room for. */
function shortened(paint, path, wide) {
  if (paint.measureText(path).width <= wide) return path;
  let [least, most] = [0, path.length];
  while (least < most) {
    const middle = (least + most) >> 1;
    if (paint.measureText("…" + path.slice(middle)).width <= wide) most = middle; else least = middle + 1;
  }
  return "…" + path.slice(least);
}
function drawSpans() {
  const LEFT = OFFSETS_LEFT;
  const on = painter(at("spans"));
  const { x } = axes(on);
  const { paint, height, width } = on;
  const half = (height - TOP - BOTTOM) / 2;
  const most = [0, 1].map((which) => Math.max(1, ...all.spans.map((span) => span[which])));
  paint.save();
  paint.beginPath(); paint.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM); paint.clip();
  all.spans.forEach((span, index) => {
    const from = x(index * all.span_s * 1e6), to = x((index + 1) * all.span_s * 1e6);
    [["data", 0], ["stall", 1]].forEach(([name, which]) => {
      const tall = span[which] / most[which] * (half - 4);
      paint.fillStyle = colour(name);
      paint.fillRect(from, TOP + half * (which + 1) - tall, Math.max(1, to - from - 0.5), tall);
    });
  });
  paint.restore();
  paint.fillStyle = colour("soft"); paint.textAlign = "right";
  paint.fillText(bytes(most[0]), LEFT - 6, TOP + 10);
  paint.fillText(seconds(most[1] / 1e6), LEFT - 6, TOP + half + 12);
}
let due = false;
function draw() {
  if (due || inOrder.length === 0) return;
  due = true;
  requestAnimationFrame(() => { due = false; drawOffsets(); drawRows(); drawSpans(); });
}
function zoom(from, to) {
  const least = Math.max(1, whole / 1e7);
  if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
  view.from = Math.max(0, from);
  view.to = Math.min(whole, Math.max(view.from + least, to));
  draw();
}
function reset() { Object.assign(view, { from: 0, to: whole, low: null, high: null }); draw(); }
function choose(index) {
  chosen = index;
  view.low = view.high = null;
  at("file").value = String(index);
  document.querySelectorAll("#files tr.pick").forEach((row) => row.classList.toggle("chosen", Number(row.dataset.index) === index));
  draw();
}

/* What the mouse does. */
function place(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const LEFT = canvas.id === "rows" ? ROWS_LEFT(box.width) : OFFSETS_LEFT;
  const right = box.width - LEFT - RIGHT, down = box.height - TOP - BOTTOM;
  const across = Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / right));
  const up = 1 - Math.min(1, Math.max(0, (event.clientY - box.top - TOP) / down));
  const [low, high] = bounds();
  return { us: view.from + across * (view.to - view.from), offset: low + up * (high - low), up, px: (view.to - view.from) / right, py: (high - low) / down };
}
function tell(event, text) {
  const tip = at("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
}
function near(file, here) {
  let best = null, least = 12;
  for (const point of file.points) {
    const across = Math.max(point[0] - here.us, 0, here.us - point[1]) / here.px;
    const up = Math.max(point[2] - here.offset, 0, here.offset - point[3]) / here.py;
    const far = Math.hypot(across, up);
    if (far < least) { least = far; best = point; }
  }
  return best;
}
function listen(canvas, hasOffsets) {
  let began = null;
  canvas.addEventListener("wheel", (event) => {
    if (!event.deltaY || event.shiftKey) return;
    event.preventDefault();
    const { us } = place(canvas, event), factor = Math.exp(Math.sign(event.deltaY) * 0.25);
    zoom(us - (us - view.from) * factor, us + (view.to - us) * factor);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { began = { ...place(canvas, event), x: event.clientX, y: event.clientY }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    if (!began) return;
    const here = place(canvas, event), [wide, tall] = [Math.abs(event.clientX - began.x), Math.abs(event.clientY - began.y)];
    if (wide > 6) {
      if (hasOffsets && tall > 12) [view.low, view.high] = [Math.min(began.offset, here.offset), Math.max(began.offset, here.offset) + 1];
      zoom(Math.min(began.us, here.us), Math.max(began.us, here.us));
    } else if (!hasOffsets) {
      choose(inOrder[Math.min(inOrder.length - 1, Math.floor((1 - here.up) * inOrder.length))] ?? 0);
    }
    began = null;
  });
  canvas.addEventListener("pointercancel", () => { began = null; });
  canvas.addEventListener("dblclick", reset);
  canvas.addEventListener("pointerleave", (event) => tell(event, ""));
  canvas.addEventListener("pointermove", (event) => {
    const here = place(canvas, event);
    if (!hasOffsets) {
      const file = all.files[inOrder[Math.min(inOrder.length - 1, Math.floor((1 - here.up) * inOrder.length))]];
      return tell(event, file ? file.path + "\n" + count(file.reads) + " reads, " + bytes(file.bytes) + ", waited " + seconds(file.stall_s) : "");
    }
    const point = all.files[chosen] && near(all.files[chosen], here);
    tell(event, point ? seconds(point[0] / 1e6) + ": " + bytes(point[3] - point[2]) + " at " + count(point[2])
      + (point[4] > 1 ? " (" + count(point[4]) + " reads)" : "") + (point[5] ? ", waited " + seconds(point[5] / 1e6) : "") : "");
  });
  canvas.addEventListener("keydown", (event) => {
    const wide = view.to - view.from;
    const move = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (move && view.from + move * wide >= 0 && view.to + move * wide <= whole) zoom(view.from + move * wide, view.to + move * wide);
    else if (event.key === "+") zoom(view.from + wide * 0.15, view.to - wide * 0.15);
    else if (event.key === "-") zoom(view.from - wide * 0.2, view.to + wide * 0.2);
    else if (event.key === "Escape") reset();
    else return;
    event.preventDefault();
  });
}
listen(at("offsets"), true);
listen(at("rows"), false);
at("reset").addEventListener("click", reset);

all.files.forEach((file, index) => {
  if (file.points.length === 0) return;
  const option = element("option", file.path + " (" + count(file.reads) + " reads, " + bytes(file.bytes) + ")");
  option.value = String(index);
  at("file").append(option);
});
at("file").addEventListener("change", () => choose(Number(at("file").value)));

/* Tables that sort by a click on a heading. */
function table(home, columns, rows, onPick) {
  let by = null, down = true;
  const made = element("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  columns.forEach(([name, value], index) => {
    const cell = element("th"), button = element("button", name);
    cell.append(button);
    button.addEventListener("click", () => {
      down = by === index ? !down : typeof value(rows[0] ?? {}) !== "string";
      by = index;
      [...head.cells].forEach((other, place) => { other.removeAttribute("aria-sort"); other.firstChild.textContent = columns[place][0]; });
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      button.textContent = name + (down ? " ▾" : " ▴");
      fill();
    });
    head.append(cell);
  });
  let wanted = () => true;
  function fill() {
    let shown = rows.filter(wanted);
    if (by !== null) {
      const value = columns[by][1];
      const compare = (a, b) => typeof a === "string" ? a.localeCompare(b) : a - b;
      shown = [...shown].sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)));
    }
    body.replaceChildren(...shown.map((row) => {
      const line = element("tr");
      columns.forEach(([, value, show, className]) => {
        const shownValue = show ? show(value(row), row) : value(row);
        const cell = element("td", undefined, className);
        cell.append(shownValue instanceof Node ? shownValue : String(shownValue));
        line.append(cell);
      });
      if (onPick && row.points.length) {
        line.className = "pick" + (row.index === chosen ? " chosen" : "");
        line.dataset.index = row.index;
        line.addEventListener("click", () => { choose(row.index); at("offsets").scrollIntoView({ block: "center" }); });
      }
      return line;
    }));
  }
  fill();
  home.append(made);
  return (filter) => { wanted = filter; fill(); };
}
const path = (text) => { const cell = element("bdi", text); cell.title = text; return cell; };
function meter(share) {
  const both = element("span"), frame = element("span", undefined, "meter"), part = element("i");
  part.style.width = 100 * share + "%";
  frame.append(part);
  both.append(frame, percent(share));
  return both;
}
all.files.forEach((file, index) => { file.index = index; });
const part = (which) => (file) => file.stall_s > 0 ? which(file) / file.stall_s : 0;
const show = (value, file) => file.stall_s > 0 ? percent(value) : "";
const filtered = table(at("files"), [
  ["file", (file) => file.path, path, "path"],
  ["waited", (file) => file.stall_s, seconds],
  ["reads", (file) => file.reads, count],
  ["bytes", (file) => file.bytes, bytes],
  ["in order", (file) => file.in_order_share, (value, file) => file.reads > 1 ? percent(value) : ""],
  ["opens", (file) => file.opens, count],
  ["looks", (file) => file.looks, (value, file) => count(value) + (file.is_missing ? " (absent)" : "")],
  ["first", (file) => file.first_s, seconds],
  ["waits known to arguments", part((file) => file.known_s[0]), show],
  ["walk", part((file) => file.known_s[1]), show],
  ["mapped order", part((file) => file.known_s[2]), show],
  ["earlier run", part((file) => file.known_s[3]), show],
  ["seen by", (file) => file.seen_by],
], all.files, true);
at("filter").addEventListener("input", () => { const text = at("filter").value; filtered((file) => file.path.includes(text)); });
if (all.other_files) at("others").textContent = count(all.other_files) + " further files and names: " + count(all.other.reads) + " reads, " + bytes(all.other.bytes) + ", waited " + seconds(all.other.stall_s) + ".";
table(at("programs"), [
  ["program", (program) => program.name],
  ["waited for reads", (program) => program.stall_s, seconds],
  ["for names", (program) => program.name_stall_s, seconds],
  ["processes", (program) => program.processes, count],
  ["reads", (program) => program.reads, count],
  ["bytes", (program) => program.bytes, bytes],
  ["names", (program) => program.names, count],
  ["first", (program) => program.first_s, seconds],
  ["last", (program) => program.last_s, seconds],
], all.programs);
table(at("known"), [
  ["source", (known) => known.source],
  ["of the waiting", (known) => known.stall_share, meter],
  ["of the bytes", (known) => known.bytes_share, meter],
  ["of the reads", (known) => known.reads_share, meter],
], all.known);
at("known-about").textContent = "What each source could have known before the read, at best. “Earlier run” compares with " + all.earlier + "; “kernel” is its own read-ahead in order."
  + (all.arguments === "all programs" ? "" : " Arguments are those of the command alone: an older foretell did not record those of the programs that it starts.");
const gained = (which) => (gain) => gain.none_s > 0 ? 1 - gain[which] / gain.none_s : 0;
const withTime = (which) => (value, gain) => seconds(gain[which]) + " (" + (value >= 0.0005 ? "−" : value <= -0.0005 ? "+" : "") + percent(Math.abs(value)) + ")";
if (all.simulated.by_device.length) {
  at("simulated-about").textContent = "Files lie as on an " + all.simulated.layout + " disk, and memory has " + bytes(all.simulated.memory_bytes) + ".";
  table(at("simulated"), [
    ["device", (gain) => gain.disks + " × " + gain.device + (gain.folder ? ": " + gain.folder : "")],
    ["no hints", (gain) => gain.none_s, seconds],
    ["files", gained("files_s"), withTime("files_s")],
    ["all", gained("all_s"), withTime("all_s")],
  ], [...all.simulated.by_device, ...all.simulated.by_folder]);
}
if (all.simulated.note || !all.simulated.by_device.length) at("simulated").append(element("p", all.simulated.note || "Nothing was simulated.", "hint"));

/* Histograms. */
function bars(home, bins, name) {
  const most = Math.max(1, ...bins.map((bin) => bin.reads));
  for (const bin of bins) {
    const bar = element("i");
    bar.style.width = 100 * bin.reads / most + "%";
    const holder = element("span");
    holder.append(bar);
    home.append(element("span", name(bin.from)), holder, element("span", count(bin.reads) + " (" + bytes(bin.bytes) + ")"));
  }
  if (!bins.length) home.append(element("span", "none"));
}
bars(at("sizes"), all.sizes, (from) => bytes(from) + " –");
bars(at("gaps"), all.gaps, (from) => from === 0 ? "none, in order" : bytes(from) + " –");

if (inOrder.length === 0) {
  document.querySelectorAll(".plot").forEach((plot) => plot.classList.add("none"));
  for (const id of ["file", "reset"]) at(id).disabled = true;
  at("offsets-note").textContent = "";
}
choose(Math.max(0, all.files.findIndex((file) => file.points.length > 0)));
new ResizeObserver(draw).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
