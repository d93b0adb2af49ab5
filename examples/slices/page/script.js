// The page of the slice viewer. One plane is asked for at a time; while it is read, only the newest wish is kept.
"use strict";

const AXES = "XYZ";
const PALETTES = {
  Fire: ["#000004", "#1b0c41", "#4a0c6b", "#781c6d", "#a52c60", "#cf4446", "#ed6925", "#fb9b06", "#f7d13d", "#fcffa4"],
  Sea: ["#03051a", "#14214f", "#1d3f87", "#1f66a8", "#2b8fb5", "#4cb5b6", "#8bd5b4", "#d9f2c4"],
  Viridis: ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"],
  Grey: ["#000000", "#ffffff"],
};
const TIMES_MAX = 60; // Bars of the chart.
const $ = (id) => document.getElementById(id);

const viewer = Math.random().toString(36).slice(2, 12);
const state = {
  cube: null,
  axis: 2,
  at: [0, 0, 0], // The position along each axis.
  toward: 0,
  hasHints: false,
  isBusy: false,
  shown: null, // {axis, at, values, width, height}
  range: [Infinity, -Infinity],
  times: [], // {ms, hasHints}
  player: null,
};
const picture = document.createElement("canvas"); // The plane, a pixel for each value.
let colours = paletteOf("Fire");

// ---- Planes

function across(axis) { // Axes to the right and upwards.
  return [[1, 2], [0, 2], [0, 1]][axis];
}

function go(at) {
  const last = state.cube.shape[state.axis] - 1;
  at = Math.max(0, Math.min(last, Math.round(at)));
  const before = state.at[state.axis];
  if (at !== before) state.toward = Math.sign(at - before);
  state.at[state.axis] = at;
  $("position").value = at;
  $("position").setAttribute("aria-valuetext", `${AXES[state.axis]} ${at}`);
  $("at").value = at;
  fetchWanted();
}

async function fetchWanted() {
  if (state.isBusy) return;
  state.isBusy = true;
  try {
    for (;;) {
      const [axis, at] = [state.axis, state.at[state.axis]];
      if (state.shown && state.shown.axis === axis && state.shown.at === at) break;
      await fetchPlane(axis, at);
      $("problem").textContent = "";
    }
  } catch (error) {
    $("problem").textContent = error instanceof TypeError ? "The viewer does not answer: has it ended?" : error.message;
    stop();
  } finally {
    state.isBusy = false;
  }
}

async function fetchPlane(axis, at) {
  const hasHints = state.hasHints;
  const answer = await fetch(
    `api/plane?axis=${axis}&at=${at}&toward=${state.toward}&hints=${hasHints ? 1 : 0}&viewer=${viewer}`);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const values = new Float32Array(await answer.arrayBuffer());
  const told = JSON.parse(answer.headers.get("Slice"));
  const [right, up] = across(axis);
  state.shown = {axis, at, values, width: state.cube.shape[right], height: state.cube.shape[up]};
  if (!state.cube.range) widen(values);
  state.times.push({ms: told.ms, hasHints});
  draw();
  tell(told, hasHints);
}

function widen(values) {
  let [least, most] = state.range;
  for (const value of values) {
    if (value < least) least = value;
    if (value > most && value < Infinity) most = value;
  }
  state.range = [least, most];
}

// ---- Pictures

function paletteOf(name) { // 256 colours, as canvases have them in memory.
  const stops = PALETTES[name].map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  const found = new Uint32Array(257);
  for (let at = 0; at < 256; at++) {
    const place = at / 255 * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = [0, 1, 2].map((one) => stops[low][one] + (place - low) * (stops[low + 1][one] - stops[low][one]));
    found[at] = 255 << 24 | b << 16 | g << 8 | r;
  }
  found[256] = 0xff404040; // No number.
  return found;
}

function draw() {
  const {values, width, height} = state.shown;
  const [least, most] = state.range;
  const scale = most > least ? 255 / (most - least) : 0;
  picture.width = width;
  picture.height = height;
  const context = picture.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let x = 0; x < width; x++) {
    for (let y = 0; y < height; y++) { // The second axis goes upwards.
      const value = (values[x * height + y] - least) * scale;
      const colour = value !== value ? 256 : value < 0 ? 0 : value > 255 ? 255 : value | 0;
      pixels[(height - 1 - y) * width + x] = colours[colour];
    }
  }
  context.putImageData(image, 0, 0);
  const shown = $("picture");
  shown.width = width;
  shown.height = height;
  shown.getContext("2d").drawImage(picture, 0, 0);
  drawCube();
  $("least").textContent = brief(least);
  $("most").textContent = brief(most);
}

function brief(value) {
  return Number.isFinite(value) ? Number(value.toPrecision(3)).toString() : "–";
}

function sized(id) { // A canvas with its pixels those of the screen.
  const canvas = $(id), ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return [context, canvas.clientWidth, canvas.clientHeight];
}

function drawCube() {
  const [context, width, height] = sized("cube");
  const longest = Math.max(...state.cube.shape);
  const size = state.cube.shape.map((side) => side / longest);
  const unit = width * 0.46;
  // X to the right and down, Y to the left and down, Z upwards.
  const place = ([x, y, z]) => [
    width / 2 + ((x - size[0] / 2) - (y - size[1] / 2)) * unit * 0.866,
    height / 2 + ((x - size[0] / 2) + (y - size[1] / 2)) * unit * 0.45 - (z - size[2] / 2) * unit * 0.95,
  ];
  const line = (from, to, colour) => {
    context.strokeStyle = colour;
    context.beginPath();
    context.moveTo(...place(from));
    context.lineTo(...place(to));
    context.stroke();
  };
  const edges = (isBehind) => {
    for (let axis = 0; axis < 3; axis++) {
      for (const [a, b] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
        const [one, other] = across(axis);
        const from = [0, 0, 0];
        from[one] = a * size[one];
        from[other] = b * size[other];
        const to = [...from];
        to[axis] = size[axis];
        const isHidden = [from, to].some((end) => end[0] === 0 && end[1] === 0 && end[2] === 0);
        if (isHidden === isBehind) line(from, to, isBehind ? "#364053" : "#8b95a7");
      }
    }
  };
  edges(true);
  const {axis, at} = state.shown;
  const [right, up] = across(axis);
  const corner = [0, 0, 0];
  corner[axis] = (at + 0.5) / longest;
  const along = (one) => { const end = [...corner]; end[one] = size[one]; return place(end); };
  const [origin, a, b] = [place(corner), along(right), along(up)];
  context.save();
  context.globalAlpha = 0.92;
  // The picture's rows go against `up`.
  context.transform((a[0] - origin[0]) / picture.width, (a[1] - origin[1]) / picture.width,
    (origin[0] - b[0]) / picture.height, (origin[1] - b[1]) / picture.height, b[0], b[1]);
  context.drawImage(picture, 0, 0);
  context.restore();
  const far = [a[0] + b[0] - origin[0], a[1] + b[1] - origin[1]];
  context.strokeStyle = "#7aa2f7";
  context.lineWidth = 1.5;
  context.beginPath();
  [origin, a, far, b, origin].forEach((point, number) => number ? context.lineTo(...point) : context.moveTo(...point));
  context.stroke();
  context.lineWidth = 1;
  edges(false);
}

function drawChart() {
  const [context, width, height] = sized("chart");
  const style = getComputedStyle(document.body);
  const times = state.times.slice(-TIMES_MAX);
  const most = Math.max(1, ...times.map((one) => one.ms));
  const top = 16, step = width / TIMES_MAX;
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = style.getPropertyValue("--quiet");
  context.fillText(`${Math.round(most)} ms`, 0, 10);
  context.fillStyle = style.getPropertyValue("--line");
  context.fillRect(0, top, width, 1);
  context.fillRect(0, height - 1, width, 1);
  times.forEach((one, number) => {
    const length = Math.max(2, one.ms / most * (height - top - 1));
    context.fillStyle = style.getPropertyValue(one.hasHints ? "--with" : "--without");
    context.fillRect(number * step, height - length, Math.max(1, step - 1.5), length);
  });
}

function inMs(value) {
  return value < 10 ? value.toFixed(1) : Math.round(value).toString();
}

function tellTimes() {
  for (const [arm, hasHints] of [["with", true], ["without", false]]) {
    const times = state.times.filter((one) => one.hasHints === hasHints).map((one) => one.ms);
    const mean = times.reduce((sum, one) => sum + one, 0) / times.length;
    const detail = document.createElement("small");
    detail.textContent = times.length ? `longest ${inMs(Math.max(...times))} ms` : "";
    $(`count-${arm}`).textContent = times.length;
    $(`times-${arm}`).replaceChildren(times.length ? `ø ${inMs(mean)} ms` : "–", detail);
  }
  drawChart();
}

function tell(told, hasHints) {
  const {axis, at} = state.shown;
  $("last").value = inMs(told.ms);
  $("last").parentElement.className = `big ${hasHints ? "with" : "without"}`;
  tellTimes();
  const last = Math.max(1, state.cube.shape[axis] - 1);
  $("ahead").replaceChildren(...told.ahead.map((one) => {
    const mark = document.createElement("i");
    mark.style.left = `${100 * one / last}%`;
    return mark;
  }));
  if (hasHints) {
    const planes = told.ahead.length === 1 ? "1 layer" : `${told.ahead.length} layers`;
    $("told").textContent = told.problem || `${planes} ahead told to ${listeners(told.told)}`;
  }
  document.body.dataset.shown = `${AXES[axis]} ${at}`;
  document.body.dataset.ahead = told.ahead.length;
}

function listeners(names) {
  const long = {run: "foretell run", mount: "the foretell mount", store: "the store"};
  return names.map((one) => long[one]).join(" and ") || "nobody yet";
}

// ---- What the user does

function choose(axis) {
  stop();
  state.axis = axis;
  state.toward = 0;
  for (const button of $("planes").children) {
    const isChosen = Number(button.dataset.axis) === axis;
    button.setAttribute("aria-checked", isChosen);
    button.tabIndex = isChosen ? 0 : -1;
  }
  $("axis").textContent = AXES[axis];
  $("position").max = state.cube.shape[axis] - 1;
  go(state.at[axis]);
}

function setHints(hasHints) {
  if ($("hints").disabled) return;
  state.hasHints = hasHints;
  $("hints").setAttribute("aria-checked", hasHints);
  if (!hasHints) {
    $("told").textContent = "Planes are read at the pace of the storage.";
    $("ahead").replaceChildren();
  }
}

function stop() {
  clearInterval(state.player);
  state.player = null;
  $("play").textContent = "▶ Play";
}

function play() {
  if (state.player) return stop();
  $("hint").hidden = true;
  const last = state.cube.shape[state.axis] - 1;
  let toward = state.at[state.axis] === last ? -1 : state.toward || 1;
  $("play").textContent = "❚❚ Stop";
  state.player = setInterval(() => {
    if (state.isBusy) return; // At the pace of the reads.
    const next = state.at[state.axis] + toward;
    if (next < 0 || next > last) return stop();
    go(next);
  }, 40);
}

function listen() {
  const shown = $("picture");
  let drag = null;
  shown.addEventListener("pointerdown", (event) => {
    stop();
    shown.setPointerCapture(event.pointerId);
    drag = {y: event.clientY, at: state.at[state.axis]};
    $("hint").hidden = true;
  });
  shown.addEventListener("pointermove", (event) => {
    tellValue(event);
    if (!drag) return;
    const planes = (drag.y - event.clientY) / shown.clientHeight * state.cube.shape[state.axis];
    go(drag.at + planes);
  });
  for (const end of ["pointerup", "pointercancel"]) shown.addEventListener(end, () => { drag = null; });
  shown.addEventListener("pointerleave", () => { $("value").textContent = ""; });
  shown.addEventListener("wheel", (event) => {
    event.preventDefault();
    stop();
    go(state.at[state.axis] - Math.sign(event.deltaY));
  }, {passive: false});
  $("position").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
  for (const button of $("planes").children) {
    button.addEventListener("click", () => choose(Number(button.dataset.axis)));
  }
  $("hints").addEventListener("click", () => setHints(!state.hasHints));
  $("play").addEventListener("click", play);
  $("clear").addEventListener("click", clear);
  $("palette").addEventListener("change", (event) => {
    colours = paletteOf(event.target.value);
    drawScale();
    if (state.shown) draw();
  });
  addEventListener("resize", () => { if (state.shown) { drawCube(); drawChart(); } });
  addEventListener("pagehide", () => navigator.sendBeacon(`api/leave?viewer=${viewer}`));
  addEventListener("keydown", key);
}

function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
  const isButton = event.target.tagName === "BUTTON";
  const steps = {ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10, Home: -1e9, End: 1e9};
  const calls = {
    1: () => choose(2), 2: () => choose(1), 3: () => choose(0),
    d: () => setHints(!state.hasHints), x: clear, " ": isButton ? null : play,
  };
  const beside = {ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling"}[event.key];
  if (beside && event.target.getAttribute?.("role") === "radio") { // Up and down go through planes there, too.
    const next = event.target[beside];
    if (next) { next.focus(); next.click(); }
  } else if (event.key in steps) {
    stop();
    $("hint").hidden = true;
    go(state.at[state.axis] + steps[event.key]);
  } else if (calls[event.key.toLowerCase()]) {
    calls[event.key.toLowerCase()]();
  } else {
    return;
  }
  event.preventDefault();
}

function clear() {
  state.times = [];
  tellTimes();
}

function tellValue(event) {
  if (!state.shown) return;
  const {axis, at, values, width, height} = state.shown;
  const box = $("picture").getBoundingClientRect();
  const scale = Math.min(box.width / width, box.height / height); // As `object-fit: contain` has it.
  const x = Math.floor((event.clientX - box.left - (box.width - width * scale) / 2) / scale);
  const y = height - 1 - Math.floor((event.clientY - box.top - (box.height - height * scale) / 2) / scale);
  if (x < 0 || y < 0 || x >= width || y >= height) {
    $("value").textContent = "";
    return;
  }
  const places = [];
  places[axis] = at;
  [places[across(axis)[0]], places[across(axis)[1]]] = [x, y];
  const value = values[x * height + y];
  $("value").textContent = `${places.map((one, number) => `${AXES[number]} ${one}`).join("  ")} = ${brief(value)}`;
}

function drawScale() {
  const canvas = $("scale");
  canvas.width = 256;
  canvas.height = 1;
  const image = canvas.getContext("2d").createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(colours.subarray(0, 256));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

async function begin() {
  for (const name of Object.keys(PALETTES)) $("palette").add(new Option(name));
  drawScale();
  let cube;
  try {
    cube = state.cube = await (await fetch("api/cube")).json();
  } catch {
    $("problem").textContent = "The viewer does not answer: has it ended?";
    return;
  }
  document.title = `${cube.name} – slices`;
  $("title").textContent = cube.name;
  const chunks = cube.chunks ? `in chunks of ${cube.chunks.join(" × ")}` : "in one piece";
  $("about").textContent = `${cube.file} · ${cube.shape.join(" × ")} ${cube.type} ${chunks}`;
  if (cube.range) state.range = cube.range;
  state.at = cube.shape.map((side) => side >> 1);
  listen();
  $("hints").disabled = !cube.listeners.length;
  setHints(cube.listeners.length > 0);
  $("told").textContent = cube.listeners.length ? `${listeners(cube.listeners)} listens`
    : cube.hasForetell ? "Nobody listens. Start the viewer with foretell run." : "The package foretell is not installed.";
  choose(2);
}

begin();
