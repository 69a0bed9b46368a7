"use strict";
// Puts graphs where the layout has them, with the bodies that are unfolded, and draws
// what is in view. Rows and columns come with the data; here they become pixels.

const WIDE = 150, TALL = 54, BOX = 128, HIGH = 28, PAD = 16, HEAD = 24, BAND = 1600;
const COARSE = 0.3; // below this scale, nobody reads what is written in a box
const SVG = "http://www.w3.org/2000/svg";

function make(kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  return element;
}

class Scene {
  // Where everything is: `at` has the left upper corner of each node that is shown.
  constructor(data) {
    this.data = data;
    this.unfolded = new Set();
    this.bodies = new Map();
    for (const graph of data.graphs) {
      if (graph.owner < 0) continue;
      if (!this.bodies.has(graph.owner)) this.bodies.set(graph.owner, []);
      this.bodies.get(graph.owner).push(graph);
    }
    this.place();
  }

  // The bodies of a node, if it is unfolded.
  open(node) {
    return this.unfolded.has(node) ? this.bodies.get(node) || [] : [];
  }

  // The node whose body must be unfolded for `node` to be seen; -1 if none.
  owner(node) {
    return this.ownerOf.get(node);
  }

  place() {
    this.at = new Map();
    this.ownerOf = this.ownerOf || new Map(
      this.data.graphs.flatMap(graph => graph.nodes.map(node => [node, graph.owner])));
    this.depths = [];
    this.width = this.height = 0;
    let left = 0;
    for (const graph of this.data.graphs) {
      if (graph.owner >= 0) continue;
      this.measure(graph);
      this.walk(graph, left, 0, 0);
      left += graph.size.width + WIDE;
      this.width = Math.max(this.width, graph.size.width);
      this.height = Math.max(this.height, graph.size.height);
    }
  }

  // Sizes of a graph in pixels, and the top of each row.
  measure(graph) {
    const extra = new Array(graph.height).fill(0);
    let width = graph.width * WIDE;
    graph.nodes.forEach((node, index) => {
      const bodies = this.open(node);
      if (!bodies.length) return;
      bodies.forEach(body => this.measure(body));
      const [column, row] = graph.at[index];
      const box = {
        width: bodies.reduce((sum, body) => sum + body.size.width + PAD, PAD),
        height: Math.max(...bodies.map(body => body.size.height)) + HEAD + PAD,
        above: extra[row],
      };
      box.left = Math.max(0, (column + 0.5) * WIDE - box.width / 2);
      bodies[0].box = box;
      extra[row] += box.height + PAD;
      width = Math.max(width, box.left + box.width);
    });
    graph.tops = [];
    let top = 0;
    extra.forEach(more => { graph.tops.push(top); top += TALL + more; });
    graph.extra = extra;
    graph.size = {width, height: Math.max(top, TALL)};
  }

  depth(number) {
    while (this.depths.length <= number) {
      this.depths.push({boxes: [], long: [], bands: new Map()});
    }
    return this.depths[number];
  }

  band(level, y) {
    const number = Math.floor(y / BAND);
    if (!level.bands.has(number)) level.bands.set(number, {number, nodes: [], edges: []});
    return level.bands.get(number);
  }

  walk(graph, left, top, number) {
    const level = this.depth(number);
    graph.nodes.forEach((node, index) => {
      const [column, row] = graph.at[index];
      const spot = {
        x: left + column * WIDE + (WIDE - BOX) / 2,
        y: top + graph.tops[row] + (TALL - HIGH) / 2,
        row, graph, depth: number,
      };
      this.at.set(node, spot);
      this.band(level, spot.y).nodes.push(node);
      const bodies = this.open(node);
      if (!bodies.length) return;
      const box = bodies[0].box;
      const x = left + box.left;
      const y = top + graph.tops[row] + TALL + box.above;
      const inner = this.depth(number + 1);
      let at = x + PAD;
      bodies.forEach(body => {
        const name = body.way.slice(body.way.lastIndexOf(".") + 1);
        inner.boxes.push({
          x: at - PAD / 2, y, width: body.size.width + PAD, height: box.height, name,
        });
        this.walk(body, at, y + HEAD, number + 1);
        at += body.size.width + PAD;
      });
    });
    graph.edges.forEach(edge => this.route(graph, edge, left, top, level));
  }

  // The points of an edge: below its source, through the rows that it passes, above its
  // target.
  route(graph, edge, left, top, level) {
    const [source, target, turns] = edge;
    const from = this.at.get(graph.nodes[source]), to = this.at.get(graph.nodes[target]);
    const points = [[from.x + BOX / 2, from.y + HIGH]];
    (turns || []).forEach((column, index) => {
      const row = from.row + 1 + index;
      points.push([left + (column + 0.5) * WIDE, top + graph.tops[row] + TALL / 2]);
    });
    points.push([to.x + BOX / 2, to.y]);
    const shown = {edge, graph, points, far: turns === null};
    const is_long = !shown.far && to.y - from.y > BAND;
    if (is_long) level.long.push(shown);
    else this.band(level, from.y).edges.push(shown);
    if (shown.far) this.band(level, to.y).edges.push({...shown, at_target: true});
  }

  // The innermost node at a point; undefined if there is none.
  node_at(x, y) {
    for (let number = this.depths.length - 1; number >= 0; number--) {
      const level = this.depths[number];
      for (const near of [Math.floor(y / BAND), Math.floor((y - HIGH) / BAND)]) {
        const found = (level.bands.get(near) || {nodes: []}).nodes.find(node => {
          const {x: left, y: top} = this.at.get(node);
          return x >= left && x <= left + BOX && y >= top && y <= top + HIGH;
        });
        if (found !== undefined) return found;
      }
      const is_within = level.boxes.some(box =>
        x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height);
      if (is_within) return undefined;
    }
    return undefined;
  }
}

class Drawing {
  // What of a scene is in view, as elements; `mark` gives a node's classes.
  constructor(world, scene, mark) {
    this.world = world;
    this.scene = scene;
    this.mark = mark;
    this.elements = new Map();
  }

  colour(ep) {
    return `ep${this.scene.data.eps[ep].colour}`;
  }

  rebuild() {
    this.world.replaceChildren();
    this.elements.clear();
    this.levels = this.scene.depths.map(level => {
      const group = this.world.appendChild(make("g", {}));
      const whole = group.appendChild(make("g", {}));
      level.boxes.forEach(box => whole.append(this.box(box)));
      level.long.forEach(edge => whole.append(this.edge(edge)));
      return {level, group, shown: new Map(), made: new Map()};
    });
  }

  // Show what is between two heights, at a scale.
  show(top, bottom, scale) {
    const is_coarse = scale < COARSE;
    for (const {level, group, shown, made} of this.levels) {
      const wanted = new Set();
      for (const band of level.bands.values()) {
        const first = band.number * BAND;
        // edges reach into the next band
        if (first > bottom || first + 2 * BAND < top) continue;
        wanted.add((is_coarse ? "c" : "d") + band.number);
      }
      for (const [key, element] of shown) {
        if (!wanted.has(key)) { element.remove(); shown.delete(key); }
      }
      for (const key of wanted) {
        if (shown.has(key)) continue;
        const band = level.bands.get(Number(key.slice(1)));
        if (!made.has(key)) {
          made.set(key, is_coarse ? this.coarse(band) : this.detailed(band));
        }
        shown.set(key, group.appendChild(made.get(key)));
      }
    }
  }

  detailed(band) {
    const group = make("g", {});
    band.edges.forEach(edge => group.append(this.edge(edge)));
    band.nodes.forEach(node => {
      const element = this.node(node);
      this.elements.set(node, element);
      group.append(element);
    });
    return group;
  }

  // All nodes of an EP as one path.
  coarse(band) {
    const group = make("g", {});
    const crossing = band.edges.filter(({edge, far}) => edge[4].length && !far);
    if (crossing.length) {
      group.append(make("path", {
        class: "edge crossing", d: crossing.map(({points}) => line(points)).join(""),
      }));
    }
    const paths = new Map();
    band.nodes.forEach(node => {
      const {x, y} = this.scene.at.get(node);
      const ep = this.scene.data.nodes[node][2];
      const before = paths.get(ep) || "";
      paths.set(ep, `${before}M${x} ${y}h${BOX}v${HIGH}h-${BOX}z`);
    });
    for (const [ep, d] of paths) group.append(make("path", {class: `coarse ${this.colour(ep)}`, d}));
    return group;
  }

  node(node) {
    const {x, y} = this.scene.at.get(node);
    const [operator, , ep, , , , time, share] = this.scene.data.nodes[node];
    const group = make("g", {
      class: `node ${this.mark(node)}`, "data-node": node, transform: `translate(${x} ${y})`,
    });
    group.append(make("rect", {
      class: `box ${this.colour(ep)}`, width: BOX, height: HIGH, rx: 5,
    }));
    if (share > 0) {
      group.append(make("rect", {
        class: "share", y: HIGH - 4, x: 2, height: 3, width: (BOX - 4) * Math.min(share, 1),
      }));
    }
    const sign = !this.scene.bodies.has(node) ? ""
      : this.scene.unfolded.has(node) ? "▾ " : "▸ ";
    const most = time ? 11 : 17;
    const short = operator.length > most ? `${operator.slice(0, most - 1)}…` : operator;
    group.append(make("text", {x: 8, y: HIGH / 2 + 4.5}, sign + short));
    if (time) {
      const text = time.split(" (")[0];
      group.append(make("text", {class: "time", x: BOX - 6, y: HIGH / 2 + 3.5}, text));
    }
    return group;
  }

  edge({edge, graph, points, far, at_target}) {
    const [source, target, , , crossed, is_copied] = edge;
    const kind = is_copied ? "edge copied" : crossed.length ? "edge crossing" : "edge";
    const [[x0, y0]] = points, [x1, y1] = points[points.length - 1];
    const d = !far ? line(points)
      : at_target ? `M${x1} ${y1 - 10}V${y1}` : `M${x0} ${y0}v10`;
    const path = make("path", {class: far ? "far" : kind, d});
    path.edge = edge;
    path.ends = [graph.nodes[source], graph.nodes[target]];
    return path;
  }

  box({x, y, width, height, name}) {
    const group = make("g", {class: "body"});
    group.append(make("rect", {x, y, width, height, rx: 8}));
    group.append(make("text", {x: x + 10, y: y + 16}, name));
    return group;
  }
}

// A curve that leaves each point downwards, and comes to the next from above.
function line(points) {
  let [x, y] = points[0];
  let d = `M${x} ${y}`;
  for (const [next_x, next_y] of points.slice(1)) {
    const middle = y + Math.min((next_y - y) / 2, TALL / 2);
    d += next_x === x ? `V${next_y}`
      : `C${x} ${middle} ${next_x} ${middle} ${next_x} ${Math.min(next_y, middle * 2 - y)}V${next_y}`;
    [x, y] = [next_x, next_y];
  }
  return d;
}
