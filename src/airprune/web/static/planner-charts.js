// The charts of the planner: an answer of the server → traces and layouts for plotly.

import { byId, chartLayout, cssValue, CHART_CONFIG, fixed, isDark, onGround, textSize } from "./common.js";

const SYMBOLS = { ok: "circle", late: "triangle-up", blocks: "x", waits: "circle-open", outside: "diamond" };
export const MARK_WORDS = {
  ok: "in time", late: "late", blocks: "blocks its edge", waits: "its edge has no plan", outside: "out of bounds",
};
// Viridis, yellow for whole models and purple for pruned ones; its dark end is lifted where the ground is dark.
const RATIO_COLOURS = {
  light: [[0, "#fde725"], [0.25, "#5ec962"], [0.5, "#21918c"], [0.75, "#3b528b"], [1, "#440154"]],
  dark: [[0, "#fde725"], [0.25, "#5ec962"], [0.5, "#2bb3ac"], [0.75, "#6f93e0"], [1, "#b57be0"]],
};
// Few to many devices: light to dark on a light ground, the other way round on a dark one.
const COUNT_COLOURS = {
  light: [[0, "#dbe9f6"], [0.35, "#9dc6e0"], [0.7, "#3f8fc5"], [1, "#08306b"]],
  dark: [[0, "#173a5e"], [0.35, "#2c6ea6"], [0.7, "#79b5e1"], [1, "#eaf4fc"]],
};
// Low to high SINR or rate: warm to violet, pale enough for marks upon it.
const GROUND_COLOURS = {
  light: [[0, "#d9772b"], [0.25, "#f6bd7e"], [0.5, "#f7efe4"], [0.75, "#cfd0e6"], [1, "#a79cce"]],
  dark: [[0, "#9a4a0f"], [0.25, "#5f3310"], [0.5, "#26221f"], [0.75, "#2f2c4a"], [1, "#51478a"]],
};
const SINR_RANGE_DB = [-10, 50]; // the same for all plans, so that one sees what interference takes
const MOST_BITS_PER_HZ = { shannon: 12, "nr-mcs": 7.4063 / 1.1 };
const SELECTED = "#e8590c"; // upon a density, whose colours are those of --accent
const MAX_BARS = 150; // beyond it bars are too thin to tell apart, and an outline is drawn instead
const MAX_LINKS = 400;
const MAX_BORDERS = 40;
const LINK_WIDTHS = [0.7, 1.6, 3];

const percent = (ratio, decimals = 1) => (ratio === null ? "–" : `${fixed(100 * ratio, decimals)} %`);

const widths = new Map(); // asking the browser for a width makes it lay out the page
const widthWatcher = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => widths.set(target.id, contentRect.width)));

function widthOf(id) {
  if (!widths.has(id)) {
    widths.set(id, byId(id).clientWidth);
    widthWatcher.observe(byId(id));
  }
  return widths.get(id);
}

/** The devices' drawn share against an equal share of their edge: 1 is equal. */
function relativeShares({ devices, edges, num_devices: all }) {
  return devices.share.map((share, i) => {
    const count = edges.num_devices[devices.edge[i]] ?? all;
    return share === null ? 1 : share * count;
  });
}

function markerSizes(answer) {
  const drawn = answer.devices.index.length;
  const base = drawn <= 60 ? 15 : drawn <= 200 ? 11 : drawn <= 600 ? 8 : 5.5;
  return relativeShares(answer).map((share) => base * Math.min(1.9, Math.max(0.55, Math.sqrt(Math.max(share, 0)))));
}

const hoverText = ({ devices, edges }) => devices.index.map((_, i) => [
  `<b>device ${escaped(devices.name[i])}</b> on edge ${escaped(edges.name[devices.edge[i]] ?? String(devices.edge[i]))}`,
  `pruned ${percent(devices.ratio[i])}, ${percent(devices.share[i])} of the bandwidth`,
  `${fixed(devices.compute_ms[i], 2)} ms compute + ${fixed(devices.uplink_ms[i], 2)} ms upload`,
  `SNR ${fixed(devices.snr_db[i], 1)} dB${devices.sinr_db ? `, SINR ${fixed(devices.sinr_db[i], 1)} dB` : ""}`,
  MARK_WORDS[devices.mark[i]] + (devices.on_time?.[i] == null ? "" : `, with ${percent(devices.on_time[i])}`),
].join("<br>"));

// Plotly reads a few tags in hover texts; names must not be read as such.
const escaped = (text) => text.slice(0, 60).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function linkTraces(answer) {
  const { devices, edges } = answer;
  if (devices.index.length > MAX_LINKS) return [];
  const relative = relativeShares(answer);
  const bounds = [0.8, 1.2, Infinity];
  return LINK_WIDTHS.map((width, bucket) => {
    const [x, y] = [[], []];
    devices.index.forEach((_, i) => {
      if (bounds.findIndex((bound) => relative[i] <= bound) !== bucket || edges.x_m[devices.edge[i]] === undefined) return;
      x.push(edges.x_m[devices.edge[i]], devices.x_m[i], null);
      y.push(edges.y_m[devices.edge[i]], devices.y_m[i], null);
    });
    return { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", line: { color: cssValue("--control"), width }, opacity: 0.55 };
  }).filter((trace) => trace.x.length);
}

function stationTraces({ edges }) {
  const [x, y] = [[], []];
  const many = edges.x_m.length > 30;
  if (!many) edges.x_m.forEach((east, k) => { x.push(0, east, null); y.push(0, edges.y_m[k], null); });
  const text = cssValue("--text");
  return [
    { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", opacity: 0.6, line: { color: cssValue("--line"), width: 1.5, dash: "dot" } },
    {
      type: "scatter", mode: "markers", x: [0, ...edges.x_m], y: [0, ...edges.y_m], hoverinfo: "text",
      text: ["<b>cloud</b>: averages the edges", ...edges.name.map((name, k) => `<b>edge ${escaped(name)}</b>, `
        + `${fixed(edges.num_devices[k])} devices<br>${edges.status[k]}; mean pruning ${percent(edges.mean_pruning[k])}<br>`
        + `smallest workable deadline ${fixed(edges.min_deadline_ms[k], 2)} ms`
        + (edges.rise_db[k] === null ? "" : `<br>interference raises its noise by ${fixed(edges.rise_db[k], 1)} dB`))],
      marker: {
        symbol: ["star", ...edges.x_m.map(() => "square")], size: [18, ...edges.x_m.map(() => (many ? 7 : 13))], opacity: 1,
        color: text, line: { width: many ? 1 : 2, color: cssValue("--ground") },
      },
    },
  ];
}

/** Places among the answer's devices of those that have a mark on the map: all, or beside a density the few that matter. */
export function markedPlaces({ devices, density, moved }, selected) {
  const places = devices.index.map((_, i) => i);
  if (density === null) return places;
  const kept = new Set([...moved, selected]);
  return places.filter((i) => kept.has(devices.index[i]) || ["late", "blocks", "outside"].includes(devices.mark[i]));
}

/** How many devices stand in each cell, on a logarithmic scale; empty cells stay bare. */
function densityTrace({ density }) {
  const { cell_m: side, west_m: west, south_m: south, columns, count, pruning } = density;
  const rows = count.length / columns;
  const inRows = (values) => Array.from({ length: rows }, (_, row) => values.slice(row * columns, (row + 1) * columns));
  const most = count.reduce((a, b) => Math.max(a, b), 1);
  const ticks = [];
  for (let tick = 1; tick < most / 1.5; tick *= 10) ticks.push(tick);
  ticks.push(most);
  const size = `${fixed(side, side < 1 ? 3 : 0)} m`;
  return {
    type: "heatmap", x0: west + side / 2, dx: side, y0: south + side / 2, dy: side,
    z: inRows(count.map((n) => (n ? Math.log10(n) : null))), zmin: 0, zmax: Math.max(Math.log10(most), 0.1),
    colorscale: COUNT_COLOURS[isDark() ? "dark" : "light"], hoverongaps: false, zsmooth: false,
    customdata: inRows(count.map((n, i) => [fixed(n), pruning[i] === null ? "no plan" : `mean pruning ${pruning[i]} %`])),
    hovertemplate: `<b>%{customdata[0]} devices</b> in this cell of ${size} × ${size}<br>%{customdata[1]}<extra></extra>`,
    colorbar: {
      ...mapBar(), tickvals: ticks.map(Math.log10), ticktext: ticks.map((tick) => fixed(tick)),
      title: { text: `devices per cell of ${size} × ${size}`, side: "top", font: { size: textSize() - 1 } },
    },
  };
}

const mapBar = () => ({
  orientation: "h", x: 0.5, xanchor: "center", y: -0.07, yanchor: "top", len: widthOf("map") < 500 ? 0.95 : 0.6,
  thickness: 9, outlinewidth: 0,
});

/** SINR or rate of the ground, and the borders between the cells of the edges. */
function groundTraces({ ground, edges, settings }) {
  const { cell_m: side, west_m: west, south_m: south, columns, value, edge } = ground;
  const rows = value.length / columns;
  const inRows = (values) => Array.from({ length: rows }, (_, row) => values.slice(row * columns, (row + 1) * columns));
  const isSinr = ground.kind === "sinr";
  const [low, high] = isSinr ? SINR_RANGE_DB : [0, settings.bandwidth_mhz * MOST_BITS_PER_HZ[settings.rate]];
  const [x, y] = [[], []];
  edge.forEach((serving, i) => {
    const [left, bottom] = [west + side * (i % columns), south + side * Math.floor(i / columns)];
    if ((i + 1) % columns && edge[i + 1] !== serving) { x.push(left + side, left + side, null); y.push(bottom, bottom + side, null); }
    if (i + columns < edge.length && edge[i + columns] !== serving) { x.push(left, left + side, null); y.push(bottom + side, bottom + side, null); }
  });
  return [
    {
      type: "heatmap", x0: west + side / 2, dx: side, y0: south + side / 2, dy: side, z: inRows(value), zmin: low, zmax: high, zsmooth: false,
      colorscale: GROUND_COLOURS[isDark() ? "dark" : "light"],
      customdata: inRows(edge.map((serving) => escaped(edges.name[serving] ?? String(serving)))),
      hovertemplate: `%{z:.1f} ${isSinr ? "dB" : "Mbit/s"} to edge %{customdata}<extra></extra>`,
      colorbar: {
        x: 1.01, xanchor: "left", y: 0.5, len: 0.9, thickness: 9, outlinewidth: 0, nticks: 6, tickfont: { size: textSize() - 2 },
        title: { text: isSinr ? "SINR dB" : "Mbit/s", side: "top", font: { size: textSize() - 1 } },
      },
    },
    { type: "scatter", mode: "lines", x, y, hoverinfo: "skip", opacity: 0.7, line: { color: cssValue("--control"), width: 1 } },
  ];
}

/** Marks upon a density: shapes as ever, no colour, since colour counts devices there. */
function markTrace(answer, selected) {
  const { devices } = answer;
  const places = markedPlaces(answer, selected);
  const [texts, pick] = [hoverText(answer), (values) => places.map((i) => values[i])];
  return {
    type: "scatter", mode: "markers", x: pick(devices.x_m), y: pick(devices.y_m), text: pick(texts), hoverinfo: "text",
    marker: {
      symbol: places.map((i) => SYMBOLS[devices.mark[i]]), opacity: 1, color: cssValue("--ground"),
      size: places.map((i) => (devices.index[i] === selected ? 13 : 8)),
      line: {
        width: places.map((i) => (devices.index[i] === selected ? 3 : 1.2)),
        color: places.map((i) => (devices.index[i] === selected ? SELECTED : cssValue("--text"))),
      },
    },
  };
}

function deviceTrace(answer, selected) {
  const { devices } = answer;
  const [thin, outline] = [devices.index.length > 600 ? 0.4 : 1.2, isDark() ? "#ffffff" : "#1c2128"];
  return {
    type: "scatter", mode: "markers", x: devices.x_m, y: devices.y_m, text: hoverText(answer), hoverinfo: "text",
    marker: {
      symbol: devices.mark.map((mark) => SYMBOLS[mark]),
      size: markerSizes(answer),
      color: devices.ratio.map((ratio) => ratio ?? 0),
      cmin: 0, cmax: 1, colorscale: RATIO_COLOURS[isDark() ? "dark" : "light"], opacity: 1,
      line: {
        width: devices.index.map((index) => (index === selected ? 4 : thin)),
        color: devices.index.map((index) => (index === selected ? cssValue("--accent") : outline)),
      },
      colorbar: {
        ...mapBar(), tickformat: ".0%", title: { text: "pruning ratio", side: "top", font: { size: textSize() - 1 } },
      },
    },
  };
}

/** The box that holds everything drawn. */
function bounds({ devices, edges, density }) {
  const least = (values) => values.reduce((a, b) => Math.min(a, b), 0);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);
  const [x, y] = [[...devices.x_m, ...edges.x_m], [...devices.y_m, ...edges.y_m]];
  if (density !== null) {
    const { cell_m: side, west_m: west, south_m: south, columns, count } = density;
    x.push(west, west + side * columns);
    y.push(south, south + side * (count.length / columns));
  }
  const pad = 0.05 * Math.max(most(x) - least(x), most(y) - least(y), 100);
  return { x: [least(x) - pad, most(x) + pad], y: [least(y) - pad, most(y) + pad] };
}

function rings({ edges, settings, is_table: isTable }) {
  if (isTable || edges.x_m.length > 60 || settings.mobility !== "none") return [];
  return edges.x_m.flatMap((east, k) => [settings.inner_m, settings.outer_m].map((radius) => ({
    type: "circle", layer: "below", line: { color: cssValue("--line"), width: 1 },
    x0: east - radius, x1: east + radius, y0: edges.y_m[k] - radius, y1: edges.y_m[k] + radius,
  })));
}

let heldBounds = null;

/** While a device is dragged the map keeps its scale. */
export const holdMap = (held) => { heldBounds = held ? (heldBounds ?? lastBounds) : null; };
let lastBounds = null;

export function drawMap(Plotly, answer, selected) {
  lastBounds = heldBounds ?? bounds(answer);
  const coarse = matchMedia("(pointer: coarse)").matches;
  const axis = { zeroline: false, ticksuffix: " m", nticks: widthOf("map") < 500 ? 5 : 7, tickangle: 0, automargin: false };
  const layout = chartLayout({
    showlegend: false, hovermode: "closest", dragmode: coarse ? false : "pan", shapes: rings(answer),
    margin: { l: 4.8 * textSize(), r: answer.ground === null ? 12 : 62, t: 8, b: 84 },
    uirevision: `${answer.num_edges} ${answer.settings.fleet ?? answer.settings.outer_m} ${answer.settings.edge_distance_m} ${answer.settings.mobility} ${answer.settings.reuse}`,
    xaxis: { ...axis, range: lastBounds.x, showticksuffix: widthOf("map") < 400 ? "last" : "all" },
    yaxis: { ...axis, range: lastBounds.y, scaleanchor: "x" },
  });
  const under = answer.ground === null || answer.density !== null ? [] : groundTraces(answer);
  const traces = answer.density === null
    ? [...under, ...linkTraces(answer), ...stationTraces(answer), deviceTrace(answer, selected)]
    : [densityTrace(answer), ...stationTraces(answer), markTrace(answer, selected)];
  return Plotly.react(byId("map"), traces, layout, CHART_CONFIG);
}

// Charts with one place per device ----------------------------------------------------------------------------------

const isSteep = ({ devices }) => isFew(devices) && devices.name.some((name) => name.length > 5);
const isFew = (devices) => devices.index.length <= 12;

/** Few labels, since each costs plotly a millisecond: names of devices if few, else of edges, else some devices. */
function deviceAxis(answer) {
  const { devices, num_edges: edges } = answer;
  const byEdge = !isFew(devices) && edges > 1 && edges <= Math.min(15, widthOf("time") / 50) && isSorted(devices.edge);
  const labels = isFew(devices) ? places(devices, 1) : byEdge ? edgePlaces(answer) : places(devices, devices.index.length / 6);
  return {
    range: [-0.6, devices.index.length - 0.4], showgrid: false, zeroline: false, fixedrange: true, automargin: false,
    title: { text: byEdge ? "devices by edge" : "device", standoff: 4, font: { size: textSize() - 1 } },
    tickangle: isSteep(answer) ? -60 : 0, tickfont: { size: textSize() - 2 }, ...labels,
  };
}

const isSorted = (values) => values.every((value, i) => i === 0 || values[i - 1] <= value);

/** One label in the middle of each edge's devices. */
function edgePlaces({ devices, edges }) {
  const used = [...new Set(devices.edge)];
  return {
    tickvals: used.map((k) => (devices.edge.indexOf(k) + devices.edge.lastIndexOf(k)) / 2),
    ticktext: used.map((k) => escaped((edges.name[k] ?? String(k)).slice(0, 10))),
    ticklen: 0,
  };
}

/** Room below for the names; plotly's own reckoning of margins takes a second pass over the chart. */
const bottom = (answer) => (isSteep(answer) ? 92 : 44);

function places(devices, step) {
  const whole = Math.max(1, Math.round(step));
  const at = devices.index.flatMap((_, i) => (i % whole === 0 ? [i] : []));
  return { tickvals: at, ticktext: at.map((i) => escaped(devices.name[i].slice(0, 14))) };
}

/** Thin lines between the devices of different edges. */
function edgeBorders({ devices, num_edges: count }) {
  if (count > MAX_BORDERS) return [];
  return devices.edge.flatMap((edge, i) => (i > 0 && edge !== devices.edge[i - 1] ? [{
    type: "line", x0: i - 0.5, x1: i - 0.5, yref: "paper", y0: 0, y1: 1, layer: "below",
    line: { color: cssValue("--line"), width: 1 },
  }] : []));
}

/** Bars, or their outline where there are too many; `stack` puts one upon the other. */
function bars(answer, values, { name, colour, opacity = 1, stack = false, axes = {} }) {
  const x = values.map((_, i) => i);
  if (values.length <= MAX_BARS) {
    return {
      type: "bar", name, x, y: values, hovertext: hoverText(answer), hoverinfo: "text", textposition: "none", ...axes,
      marker: {
        color: faded(colour, opacity),
        opacity: answer.devices.mark.map((mark) => (mark === "ok" || mark === "late" ? 1 : 0.55)),
        line: { width: 0 },
      },
    };
  }
  return {
    type: "scatter", mode: "lines", name, x, y: values.map((value) => value ?? 0), hovertext: hoverText(answer), hoverinfo: "text",
    line: { shape: "hvh", width: 0.5, color: colour }, fillcolor: faded(colour, 0.85 * opacity), ...axes,
    ...(stack ? { stackgroup: "time" } : { fill: "tozeroy" }),
  };
}

function faded(colour, alpha) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${alpha})`;
}

export function drawTimes(Plotly, answer, colour) {
  const { devices, settings } = answer;
  const drawnColour = onGround(colour);
  const troubled = devices.mark.flatMap((mark, i) => (mark === "ok" || devices.index.length > MAX_BARS ? [] : [i]));
  const highest = devices.latency_ms.reduce((a, b) => Math.max(a, b ?? 0), settings.deadline_ms);
  const ends = [-0.6, devices.index.length - 0.4];
  const traces = [
    bars(answer, devices.compute_ms, { name: "compute", colour: drawnColour, stack: true }),
    bars(answer, devices.uplink_ms, { name: "upload", colour: drawnColour, opacity: 0.45, stack: true }),
    ...(troubled.length ? [{
      type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false,
      x: troubled, y: troubled.map((i) => (devices.latency_ms[i] ?? 0) + 0.05 * highest),
      marker: { symbol: troubled.map((i) => SYMBOLS[devices.mark[i]]), size: 9, color: cssValue("--bad") },
    }] : []),
    {
      type: "scatter", mode: "lines", hoverinfo: "skip", name: `deadline ${settings.deadline_ms} ms`,
      x: ends, y: [settings.deadline_ms, settings.deadline_ms], line: { color: cssValue("--bad"), width: 2.5 },
    },
  ];
  const layout = chartLayout({
    barmode: "stack", bargap: 0.25, showlegend: true, hovermode: "closest",
    legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { size: textSize() - 1 } },
    margin: { l: 4.8 * textSize(), r: 8, t: 30, b: bottom(answer) },
    shapes: edgeBorders(answer),
    xaxis: deviceAxis(answer),
    yaxis: { range: [0, 1.13 * highest], ticksuffix: " ms", fixedrange: true, nticks: 6, automargin: false },
  });
  return Plotly.react(byId("time"), traces, layout, CHART_CONFIG);
}

export function drawShares(Plotly, answer, colour) {
  const { devices, settings } = answer;
  const quiet = cssValue("--control");
  const line = cssValue("--line");
  const traces = [
    bars(answer, devices.ratio, { name: "pruning ratio", colour: onGround(colour) }),
    bars(answer, devices.share, { name: "bandwidth share", colour: quiet, axes: { yaxis: "y2" } }),
  ];
  const layout = chartLayout({
    bargap: 0.25, showlegend: false, hovermode: "closest", margin: { l: 4.8 * textSize(), r: 8, t: 8, b: bottom(answer) },
    shapes: [...edgeBorders(answer), {
      type: "line", xref: "paper", x0: 0, x1: 1, y0: settings.max_pruning, y1: settings.max_pruning, line: { color: quiet, width: 1.5, dash: "dot" },
      label: { text: `cap ${percent(settings.max_pruning, 0)}`, textposition: "end", yanchor: "bottom", font: { size: textSize() - 1 } },
    }],
    xaxis: { ...deviceAxis(answer), anchor: "y2" },
    yaxis: { domain: [0.56, 1], range: [0, 1.2], tickformat: ".0%", title: { text: "pruned", font: { size: textSize() - 1 }, standoff: 4 }, fixedrange: true, nticks: 4, automargin: false },
    yaxis2: {
      domain: [0, 0.46], rangemode: "tozero", tickformat: "~p", title: { text: "share", font: { size: textSize() - 1 }, standoff: 4 }, fixedrange: true, nticks: 4,
      gridcolor: line, linecolor: line, zerolinecolor: line,
    },
  });
  return Plotly.react(byId("share"), traces, layout, CHART_CONFIG);
}
