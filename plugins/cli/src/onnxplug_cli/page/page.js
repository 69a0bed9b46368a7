// What a person does with the page: looks closer, moves, asks, unfolds.

const data = JSON.parse(document.getElementById("data").textContent);
const by = id => document.getElementById(id);
const view = by("view"), world = by("world"), hover = by("hover");
const scene = new Scene(data);
const state = {
  scale: 1, x: 0, y: 0, chosen: -1, found: [], isFound: new Set(), at: -1, mates: -1,
};
const drawing = new Drawing(world, scene, marks);

// about nodes, in words

function marks(node) {
  const is_mate = state.mates >= 0 && data.nodes[node][3] === state.mates;
  return [
    state.isFound.has(node) && "found", is_mate && "mates",
    node === state.chosen && "chosen",
  ].filter(Boolean).join(" ");
}

function remark(nodes = drawing.elements.keys()) {
  for (const node of nodes) {
    const element = drawing.elements.get(node);
    if (element) element.setAttribute("class", `node ${marks(node)}`);
  }
}

const called = node => {
  const [operator, name] = data.nodes[node];
  return name ? `${operator} ${name}` : operator;
};

function facts(node) {
  const [, , ep, number, said, makes, time] = data.nodes[node];
  const part = data.partitions[number];
  const lines = [`${data.eps[ep].name}${number < 0 ? "" : `, partition ${number}`}`];
  if (part) lines.push(...part.lines.slice(0, 4));
  if (time) lines.push(time);
  lines.push(...said.map(place => data.strings[place]));
  lines.push(...makes.map(text => `makes ${text}`));
  if (scene.bodies.has(node)) {
    lines.push(scene.unfolded.has(node) ? "Enter folds its bodies"
      : "Enter or a double click unfolds its bodies");
  }
  return lines;
}

function flow([, , , values, crossed, is_copied]) {
  const lines = [values.join(", ")];
  for (const number of crossed) {
    const [value, source, targets, size] = data.borders[number];
    lines.push(`${value} crosses from ${source} to ${targets}: ${size}`);
  }
  if (is_copied) lines.push("copied in each run");
  return lines;
}

function tell(element, title, lines) {
  const name = document.createElement("b");
  name.textContent = title;
  element.replaceChildren(name, "\n" + lines.join("\n"));
}

// what is read and what reads, for keys and links

const reads = new Map(), read_by = new Map();
for (const graph of data.graphs) {
  for (const [source, target] of graph.edges) {
    const from = graph.nodes[source], to = graph.nodes[target];
    if (!reads.has(to)) reads.set(to, []);
    if (!read_by.has(from)) read_by.set(from, []);
    reads.get(to).push(from);
    read_by.get(from).push(to);
  }
}

// looking

let waiting = 0;
function redraw() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; draw(); });
}

function draw() {
  const {scale, x, y} = state;
  world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  drawing.show(-y / scale, (view.clientHeight - y) / scale, scale);
}

function zoom(factor, x = view.clientWidth / 2, y = view.clientHeight / 2) {
  const scale = Math.min(Math.max(state.scale * factor, least_scale()), 4);
  state.x = x - (x - state.x) * scale / state.scale;
  state.y = y - (y - state.y) * scale / state.scale;
  state.scale = scale;
  redraw();
}

const least_scale = () => Math.min(
  1, view.clientWidth / (scene.width + 40), view.clientHeight / (scene.height + 40)) / 2;

function fit() {
  const across = view.clientWidth / (scene.width + 40);
  const down = view.clientHeight / (scene.height + 40);
  state.scale = Math.min(across, down, 1);
  state.x = (view.clientWidth - scene.width * state.scale) / 2;
  state.y = (view.clientHeight - scene.height * state.scale) / 2;
  redraw();
}

function go_to(node) {
  const {x, y} = scene.at.get(node);
  state.scale = Math.max(state.scale, 0.7);
  state.x = view.clientWidth / 2 - (x + BOX / 2) * state.scale;
  state.y = view.clientHeight / 2 - (y + HIGH / 2) * state.scale;
  redraw();
}

function is_in_view(node) {
  const {x, y} = scene.at.get(node), {scale} = state;
  const left = x * scale + state.x, top = y * scale + state.y;
  return left > 0 && top > 0 && left + BOX * scale < view.clientWidth &&
    top + HIGH * scale < view.clientHeight && scale >= COARSE;
}

// unfolding

function rearrange() {
  scene.place();
  drawing.rebuild();
  redraw();
}

function fold(node) {
  if (!scene.bodies.has(node)) return;
  const before = scene.at.get(node);
  if (!scene.unfolded.delete(node)) scene.unfolded.add(node);
  rearrange();
  const after = scene.at.get(node); // which stays where it was
  state.x -= (after.x - before.x) * state.scale;
  state.y -= (after.y - before.y) * state.scale;
}

function fold_all() {
  const is_all = [...scene.bodies.keys()].every(node => scene.unfolded.has(node));
  scene.unfolded = new Set(is_all ? [] : scene.bodies.keys());
  by("unfold").textContent = is_all ? "unfold all" : "fold all";
  rearrange();
  if (state.chosen >= 0 && !scene.at.has(state.chosen)) choose(-1);
}

function reveal(node) {
  const folded = [];
  for (let at = scene.owner(node); at >= 0; at = scene.owner(at)) {
    if (!scene.unfolded.has(at)) folded.push(at);
  }
  if (!folded.length) return;
  folded.forEach(each => scene.unfolded.add(each));
  rearrange();
}

// choosing

function links(title, nodes) {
  const list = document.createElement("div");
  if (!nodes || !nodes.length) return list;
  list.append(`${title} `);
  [...new Set(nodes)].slice(0, 12).forEach((node, index) => {
    const link = document.createElement("a");
    link.textContent = called(node);
    link.dataset.to = node;
    list.append(index ? ", " : "", link);
  });
  return list;
}

function choose(node, is_shown = true) {
  state.chosen = node;
  state.mates = node < 0 ? -1 : data.nodes[node][3];
  const chosen = by("chosen");
  if (node < 0) chosen.replaceChildren();
  else {
    reveal(node);
    tell(chosen, called(node), facts(node));
    chosen.append(links("reads", reads.get(node)), links("read by", read_by.get(node)));
    if (is_shown && !is_in_view(node)) go_to(node);
  }
  draw();
  remark();
  for (const path of world.querySelectorAll("path.edge")) {
    path.classList.toggle("of", node >= 0 && !!path.ends && path.ends.includes(node));
  }
}

function step(key) {
  if (!data.nodes.length) return;
  if (state.chosen < 0) return choose(data.graphs[0].nodes[0]);
  const here = scene.at.get(state.chosen);
  const nearest = nodes => (nodes || []).filter(node => scene.at.has(node)).sort((a, b) =>
    Math.abs(scene.at.get(a).x - here.x) - Math.abs(scene.at.get(b).x - here.x) ||
    Math.abs(scene.at.get(a).y - here.y) - Math.abs(scene.at.get(b).y - here.y))[0];
  const beside = sign => here.graph.nodes.filter(node => {
    const spot = scene.at.get(node);
    return spot.row === here.row && (spot.x - here.x) * sign > 0;
  });
  const next = {
    ArrowUp: () => nearest(reads.get(state.chosen)),
    ArrowDown: () => nearest(read_by.get(state.chosen)),
    ArrowLeft: () => nearest(beside(-1)),
    ArrowRight: () => nearest(beside(1)),
  }[key]();
  if (next !== undefined) choose(next);
}

// finding

function find() {
  const wanted = by("wanted").value.trim().toLowerCase();
  state.found = !wanted ? [] : data.nodes.map((_, node) => node).filter(node => {
    const [operator, name, ep, , , makes] = data.nodes[node];
    return [operator, name, data.eps[ep].name, ...makes].some(
      text => text.toLowerCase().includes(wanted));
  });
  state.isFound = new Set(state.found);
  state.at = -1;
  const count = state.found.length;
  by("found").textContent = !wanted ? "" : count === 1 ? "1 node" : `${count} nodes`;
  remark();
}

function next_found(sign) {
  const count = state.found.length;
  if (!count) return;
  state.at = (state.at + sign + count) % count;
  by("found").textContent = `${state.at + 1} of ${count}`;
  choose(state.found[state.at]);
}

// beside the graph

function item(list, ep, title, lines, on_click) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = `ep${data.eps[ep].colour}`;
  button.textContent = title;
  const entry = document.createElement("li");
  const text = document.createElement("div");
  text.className = "lines";
  text.textContent = lines.join("\n");
  entry.append(button, text);
  button.addEventListener("click", on_click);
  by(list).append(entry);
}

function table(id, rows) {
  by(`${id}-title`).textContent += ` (${rows.length})`;
  for (const row of rows.slice(0, 500)) {
    const line = by(id).tBodies[0].insertRow();
    row.forEach(text => { line.insertCell().textContent = text; });
  }
  if (rows.length > 500) {
    by(id).tBodies[0].insertRow().insertCell().textContent = `… ${rows.length - 500} more`;
  }
}

function describe_all() {
  by("headline").textContent = data.headline;
  by("times").textContent = data.times;
  by("report").textContent = data.report;
  data.eps.forEach(({name, nodes, device, state: outcome}, ep) => {
    const lines = [device, outcome].filter(Boolean);
    item("eps", ep, `${name}: ${nodes} nodes`, lines, () => {
      by("wanted").value = name;
      find();
      next_found(1);
    });
  });
  by("parts-title").textContent += ` (${data.partitions.length})`;
  for (const {number, ep, lines} of data.partitions.slice(0, 500)) {
    item("parts", ep, `${number}: ${data.eps[ep].name}`, lines, () => {
      const node = data.nodes.findIndex(each => each[3] === number);
      if (node >= 0) choose(node);
    });
  }
  table("borders", data.borders.map(
    ([value, source, targets, size, is_copied]) =>
      [value, source, targets, size, is_copied ? "copied" : ""]));
  table("copies", data.copies);
  by("unfold").hidden = !scene.bodies.size;
}

// the pointer

function point({clientX, clientY}) {
  const {left, top} = view.getBoundingClientRect();
  return [clientX - left, clientY - top];
}

function under(event) {
  const [x, y] = point(event);
  return scene.node_at((x - state.x) / state.scale, (y - state.y) / state.scale);
}

// Lines are thin, and some have gaps.
function line_near({clientX, clientY, target}) {
  if (target.edge) return target;
  for (const [dx, dy] of [[0, 5], [0, -5], [4, 0], [-4, 0], [3, 3], [-3, -3]]) {
    const found = document.elementFromPoint(clientX + dx, clientY + dy);
    if (found && found.edge) return found;
  }
  return {};
}

function tell_at(event) {
  const node = under(event);
  const {edge, ends} = line_near(event);
  hover.hidden = node === undefined && !edge;
  if (hover.hidden) return;
  if (node !== undefined) tell(hover, called(node), facts(node));
  else tell(hover, `${called(ends[0])} → ${called(ends[1])}`, flow(edge));
  const {offsetWidth: width, offsetHeight: height} = hover;
  hover.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  hover.style.top = `${Math.max(0, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
}

const pointers = new Map();
let moved = 0;
view.addEventListener("pointerdown", event => {
  pointers.set(event.pointerId, event);
  if (pointers.size === 1) moved = 0;
  view.setPointerCapture(event.pointerId);
});
view.addEventListener("pointermove", event => {
  const before = pointers.get(event.pointerId);
  if (!before) return tell_at(event);
  const others = [...pointers.values()].filter(each => each !== before);
  if (others.length) { // two fingers
    const [other] = others;
    const distance = each => Math.hypot(
      each.clientX - other.clientX, each.clientY - other.clientY) || 1;
    zoom(distance(event) / distance(before), ...point(other));
  } else {
    state.x += event.clientX - before.clientX;
    state.y += event.clientY - before.clientY;
  }
  moved += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
  pointers.set(event.pointerId, event);
  view.classList.toggle("moved", moved > 4);
  hover.hidden = true;
  redraw();
});
for (const kind of ["pointerup", "pointercancel"]) {
  view.addEventListener(kind, event => {
    pointers.delete(event.pointerId);
    view.classList.remove("moved");
    if (kind === "pointerup" && moved <= 4) choose(under(event) ?? -1, false);
  });
}
view.addEventListener("pointerleave", () => { hover.hidden = true; });
view.addEventListener("dblclick", event => {
  const node = under(event);
  if (node !== undefined) fold(node);
});
view.addEventListener("wheel", event => {
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey) state.x -= event.deltaY * lines;
  else return zoom(Math.exp(-event.deltaY * lines / 400), ...point(event));
  redraw();
}, {passive: false});

// keys, and the rest

document.addEventListener("keydown", event => {
  const is_typing = event.target === by("wanted");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { by("wanted").value = ""; find(); choose(-1); view.focus(); }
  if (is_typing) return;
  const is_control = event.target.closest("button, summary, a");
  const actions = {
    "/": () => by("wanted").focus(), "+": () => zoom(1.25), "=": () => zoom(1.25),
    "-": () => zoom(0.8), "0": () => fit(), "u": fold_all,
    "Enter": () => { if (!is_control && state.chosen >= 0) fold(state.chosen); },
  };
  if (event.key.startsWith("Arrow") && event.target === view) step(event.key);
  else if (actions[event.key]) actions[event.key]();
  else return;
  if (!(event.key === "Enter" && is_control)) event.preventDefault();
});
by("wanted").addEventListener("input", find);
by("find").addEventListener("submit", event => { event.preventDefault(); next_found(1); });
by("chosen").addEventListener("click", event => {
  if (event.target.dataset.to) choose(Number(event.target.dataset.to));
});
by("in").addEventListener("click", () => zoom(1.25));
by("out").addEventListener("click", () => zoom(0.8));
by("fit").addEventListener("click", () => fit());
by("unfold").addEventListener("click", fold_all);
addEventListener("resize", redraw);

describe_all();
drawing.rebuild();
fit();
if (state.scale < COARSE) { // a large graph from its top, as it can be read
  go_to(data.graphs[0].nodes[0]);
  state.y = 20;
}
draw();
