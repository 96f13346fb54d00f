// The pictures of the runs page. Each function draws what it is given and keeps nothing.

import { cssValue, dataTable, drawChart, fixed, isDark, onGround, told } from "./common.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star"];
const NO_SCHEME = { colour: "#7a828a", symbol: "circle", dash: "dot" };
const COMPUTE = "#E69F00";
const UPLINK = "#0072B2";
const DEADLINE = { light: "#B03A00", dark: "#ff9d6b" };
const FATES = { dropped: "✗ dropped", late: "▸ late", blocked: "⊘ blocked", failed: "! failed" };

/** Text that the charts' script shows to the letter: it reads tags and %{…} otherwise. */
export const literal = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")
  .replace(/%\{/g, "%\u200b{");

export const shortened = (text, length) => (text.length <= length ? text : `…${text.slice(text.length - length + 1)}`);

/** A style per run: the colour given, or else its scheme's; another dash and marker for each further run of that colour. */
export function stylesOf(names, rows, styles, colours = new Map()) {
  const seen = new Map();
  return new Map(names.map((name) => {
    const own = colours.has(name) ? { ...NO_SCHEME, dash: "solid", colour: colours.get(name) } : styles[rows.get(name)?.scheme ?? null] ?? NO_SCHEME;
    const before = seen.get(own.colour) ?? 0;
    seen.set(own.colour, before + 1);
    const turned = (list, first) => list[(Math.max(0, list.indexOf(first)) + before) % list.length];
    return [name, { colour: own.colour, dash: turned(DASHES, own.dash), symbol: turned(SYMBOLS, own.symbol) }];
  }));
}

/** Rounds are whole: no ticks between them. */
export const roundTicks = (against, longest, axes) =>
  against !== "global_round" || axes.x.type === "log" ? {} : { tickformat: "d", ...(longest <= 12 ? { dtick: 1 } : {}) };

/** The chosen measure of every run; resolves when drawn. */
export function drawCurves(target, runs, { columns, measure, against, measures, narrow, axes }) {
  const [x, y] = [columns.indexOf(against), columns.indexOf(measure)];
  const axis = measures[against];
  const isPercent = measures[measure].unit === "%";
  const longest = Math.max(0, ...runs.map((run) => run.rows.length));
  const traces = runs.map(({ name, rows, style }) => ({
    type: "scatter",
    mode: "lines+markers",
    name: literal(shortened(name, narrow ? 26 : 60)),
    x: rows.map((row) => (row[x] === null ? null : row[x] * axis.axis_scale)),
    y: rows.map((row) => row[y]),
    line: { color: onGround(style.colour), dash: style.dash, width: 2.2 },
    marker: { color: onGround(style.colour), symbol: style.symbol, size: 8, maxdisplayed: 14 },
    hovertemplate: `${isPercent ? "%{y:.2%}" : "%{y:.4~g}"} at %{x:,.6~g}<extra>%{fullData.name}</extra>`,
  }));
  // The legend takes its lines from the plot, so the chart grows with them.
  const lines = Math.ceil(runs.length / Math.max(1, Math.floor(target.clientWidth / 230)));
  target.style.height = `calc(clamp(280px, 42vh, 620px) + ${19 * lines}px)`;
  return drawChart(target, traces, {
    height: target.clientHeight, // plotly would keep the height of the chart before
    showlegend: true,
    legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 12 }, itemclick: false, itemdoubleclick: false },
    hovermode: "closest",
    margin: { l: 52, r: 10, t: 8, b: 46 },
    xaxis: { title: { text: axis.axis_label, standoff: 8 }, ...roundTicks(against, longest, axes), ...axes.x },
    yaxis: { title: { text: measures[measure].axis_label, standoff: 6 }, ...(isPercent ? { tickformat: ".0%" } : {}), ...axes.y },
  });
}

/** Compute, then uplink, of each device against the deadline; who is left out is told by a word and hatching. */
export function drawDevices(target, answer) {
  const { drawn } = answer;
  const pick = (column) => drawn.map((i) => answer[column][i]);
  const fates = pick("fate");
  const blocked = fates.map((fate) => fate === "blocked");
  const milli = (values) => values.map((value, i) => (blocked[i] || value === null ? 0 : value * 1e3));
  const [compute, uplink] = [milli(pick("compute_s")), milli(pick("uplink_s"))];
  const edges = pick("edge");
  const labels = pick("device").map((device, i) => `${device} · edge ${edges[i]}`);
  const deadline = answer.deadline_s === null ? null : answer.deadline_s * 1e3;
  const ends = compute.map((value, i) => value + uplink[i]);
  const reach = Math.max(deadline ?? 0, ...ends) || 1;
  const hatched = fates.map((fate) => (fate === "ok" ? "" : "/"));
  const bar = (name, values, colour) => ({
    type: "bar", orientation: "h", name, x: values, y: labels,
    marker: { color: colour, pattern: { shape: hatched, size: 7, solidity: 0.4 }, line: { color: colour, width: 1 } },
    hovertemplate: `${name} %{x:.3f} ms<extra>device %{y}</extra>`,
  });
  const line = isDark() ? DEADLINE.dark : DEADLINE.light;
  const marks = fates.map((fate, i) => ({ fate, i })).filter(({ fate }) => fate !== "ok").map(({ fate, i }) => ({
    x: ends[i], y: labels[i], text: literal(FATES[fate] ?? fate), showarrow: false, xanchor: "left", xshift: 4,
    font: { size: 12, color: cssValue("--text") },
  }));
  const inLegend = deadline === null ? [] : [{
    type: "scatter", mode: "lines", name: `deadline ${fixed(deadline, 1)} ms`, x: [null], y: [labels[0]],
    line: { color: line, width: 2, dash: "dash" },
  }];
  const room = marks.length === 0 ? 1.08 : target.clientWidth < 420 ? 1.5 : 1.28;
  const height = 92 + Math.max(60, drawn.length * (drawn.length > 30 ? 17 : 24));
  target.style.height = `${height}px`;
  return drawChart(target, [bar("compute", compute, COMPUTE), bar("uplink", uplink, UPLINK), ...inLegend], {
    barmode: "stack", bargap: 0.28, height,
    margin: { l: 60, r: 10, t: 24, b: 42 },
    showlegend: true,
    legend: { orientation: "h", traceorder: "normal", y: 1, yanchor: "bottom", x: 0, font: { size: 12 }, itemclick: false, itemdoubleclick: false },
    xaxis: { title: { text: "time in the round (ms)", standoff: 8 }, range: [0, reach * room] },
    yaxis: { type: "category", autorange: "reversed", tickfont: { size: drawn.length > 30 ? 10 : 12 }, ticks: "" },
    shapes: deadline === null ? [] : [{
      type: "line", x0: deadline, x1: deadline, y0: 0, y1: 1, yref: "paper", line: { color: line, width: 2, dash: "dash" },
    }],
    annotations: marks,
  });
}

/** The devices as a table. */
export function devicesTable(answer, { measures, deviceColumns }) {
  const rows = answer.device.map((device, i) => [
    String(device), String(answer.edge[i]), answer.fate[i],
    ...deviceColumns.map((name) => told(measures[name], answer[name][i])),
  ]);
  return dataTable(["device", "edge", "fate", ...deviceColumns.map((name) => measures[name].heading)], rows,
    { words: [2], caption: `Global round ${answer.global_round}, edge round ${answer.edge_round}` });
}

const roundName = (entry) => `${entry[0]}.${entry[1]}`;

/** Coverage by edge round and edge; `place` is 1 for the lowest count, 2 for uncovered weights. */
export function drawCoverage(target, entries, place) {
  const edges = [...new Set(entries.flatMap((entry) => entry[2].map((row) => row[0])))].sort((a, b) => a - b);
  const byEdge = edges.map((edge) => entries.map((entry) => entry[2].find((row) => row[0] === edge)?.[place] ?? null));
  const few = entries.length * edges.length <= 200 && (target.clientWidth - 70) / entries.length >= 46;
  const height = 90 + Math.max(90, edges.length * 34);
  target.style.height = `${height}px`;
  const low = isDark() ? "#232a32" : "#f1f4f7";
  return drawChart(target, [{
    type: "heatmap", z: byEdge, x: entries.map(roundName), y: edges.map((edge) => `edge ${edge}`), xgap: 1, ygap: 2,
    colorscale: [[0, low], [1, isDark() ? "#3f8fdc" : "#5aa9e6"]], showscale: !few,
    colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 11 } },
    text: few ? byEdge.map((line) => line.map((value) => fixed(value))) : undefined,
    texttemplate: few ? "%{text}" : undefined, textfont: { size: 12, color: cssValue("--text") },
    hovertemplate: "%{y}, round %{x}: %{z:,}<extra></extra>",
  }], {
    height, margin: { l: 60, r: 10, t: 8, b: 46 },
    xaxis: { type: "category", title: { text: "global round . edge round", standoff: 8 }, nticks: 16, showgrid: false },
    yaxis: { type: "category", autorange: "reversed", showgrid: false, ticks: "" },
  });
}

/** Coverage as a table, one line per edge round and edge. */
export function coverageTable(entries) {
  const rows = entries.flatMap((entry) => entry[2].map(([edge, fewest, uncovered]) => [
    roundName(entry), String(edge), fixed(fewest), fixed(uncovered)]));
  return dataTable(["round", "edge", "fewest devices that kept a weight", "weights that no device kept"], rows.slice(-600),
    { words: [0], caption: rows.length > 600 ? `The last 600 of ${fixed(rows.length)} lines` : "Coverage by round and edge" });
}
