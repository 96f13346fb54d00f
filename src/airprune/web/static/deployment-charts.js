// Charts of a run on real machines: when uploads arrived, how good the predictions were.

import { drawChart, fixed, isDark, onGround } from "./common.js";
import { literal } from "./runs-charts.js";

const DEADLINE = { light: "#B03A00", dark: "#ff9d6b" };
const PARTS = [["compute", "#E69F00", "circle"], ["uplink", "#0072B2", "square"]];
const FATES = [
  ["ok", "in time", "#0072B2", "circle"], ["late", "missed the deadline", "#D55E00", "triangle-up"], ["refused", "refused", "#CC79A7", "diamond"],
  ["failed", "failed", "#009E73", "square"], ["dropped", "dropped", "#7a828a", "x"], ["other", "other", "#7a828a", "star"],
];

/** Seconds in the unit in which they are best read. */
export const seconds = (value) => (value === null || value === undefined ? "–" : value < 1 ? `${fixed(value * 1e3, value < 0.1 ? 1 : 0)} ms`
  : value < 120 ? `${fixed(value, 1)} s` : `${fixed(value / 60)} min`);
const legend = { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 12 }, itemclick: false, itemdoubleclick: false };
const deadlineColour = () => (isDark() ? DEADLINE.dark : DEADLINE.light);

/** The unit in which the largest of some times is best read: [factor, name]. */
const unitOf = (largest) => (largest < 1 ? [1e3, "ms"] : [1, "s"]);

/** One mark per upload by edge round, and the deadline; those that never came stand on a line of their own above. */
export function drawArrivals(target, points, at) {
  const arrived = points.map((point) => point[at.arrived_s]).filter((value) => value !== null);
  const deadlines = new Map(points.filter((point) => point[at.deadline_s] !== null).map((point) => [point[at.round], point[at.deadline_s]]));
  const reach = Math.max(0, ...arrived, ...deadlines.values());
  const [scale, unit] = unitOf(reach);
  const lost = 1.12 * reach * scale;
  const order = new Map([...new Set(points.map((point) => point[at.name]))].map((name, i) => [name, i]));
  const spread = (name) => ((order.get(name) % 7) - 3) * 0.09; // devices of a round side by side
  const trace = (chosen, name, colour, symbol, y) => ({
    type: "scatter", mode: "markers", name,
    x: chosen.map((point) => point[at.round] + 1 + spread(point[at.name])), y: chosen.map(y),
    text: chosen.map((point) => literal(`${point[at.name]}: ${point[at.arrived_s] === null ? point[at.fate] : seconds(point[at.arrived_s])}, round ${point[at.round] + 1}`)),
    marker: { color: onGround(colour), symbol, size: 7, opacity: 0.85 },
    hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
  });
  const came = (fate) => points.filter((point) => point[at.fate] === fate && point[at.arrived_s] !== null);
  const traces = FATES.map(([fate, name, colour, symbol]) => trace(came(fate), name, colour, symbol, (point) => point[at.arrived_s] * scale));
  const never = points.filter((point) => point[at.arrived_s] === null);
  traces.push(trace(never, "did not arrive", "#7a828a", "x-thin-open", () => lost));
  const rounds = [...deadlines.keys()].sort((a, b) => a - b);
  if (rounds.length) {
    const ends = [rounds[0] - 0.5, ...rounds, rounds[rounds.length - 1] + 0.5];
    const height = [deadlines.get(rounds[0]), ...rounds.map((round) => deadlines.get(round)), deadlines.get(rounds[rounds.length - 1])];
    traces.unshift({
      type: "scatter", mode: "lines", name: "deadline", x: ends.map((round) => round + 1), y: height.map((value) => value * scale),
      line: { color: deadlineColour(), width: 2, dash: "dash", shape: "hvh" }, hovertemplate: `%{y:.4~g} ${unit}<extra>deadline</extra>`,
    });
  }
  target.style.height = "340px";
  return drawChart(target, traces.filter((one) => one.x.length), {
    showlegend: true, legend, hovermode: "closest", margin: { l: 52, r: 10, t: 8, b: 46 },
    xaxis: { title: { text: "edge round", standoff: 8 }, tickformat: "d", ...(order.size && rounds.length <= 12 ? { dtick: 1 } : {}) },
    yaxis: { title: { text: `since the orders (${unit})`, standoff: 6 }, range: [0, (never.length ? 1.2 : 1.08) * reach * scale || 1] },
  });
}

/** Compute and uplink times, each against what was planned; on the dashed line the prediction was right. */
export function drawPredicted(target, points, at) {
  const pairs = PARTS.map(([part]) => points.map((point) => [point[at[`planned_${part}_s`]], point[at[`${part}_s`]], point[at.name]])
    .filter(([planned, measured]) => planned > 0 && measured > 0));
  const all = pairs.flat().flatMap(([planned, measured]) => [planned, measured]);
  const [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
  const [scale, unit] = unitOf(high);
  const isWide = high > 20 * low;
  const ends = isWide ? [low * 0.8 * scale, high * 1.25 * scale] : [0, high * 1.08 * scale];
  const axis = isWide ? { type: "log", range: ends.map(Math.log10), dtick: 1 } : { range: ends };
  const marks = PARTS.map(([part, colour, symbol], i) => ({
    type: "scatter", mode: "markers", name: part, x: pairs[i].map(([planned]) => planned * scale), y: pairs[i].map(([, measured]) => measured * scale),
    text: pairs[i].map(([planned, measured, name]) => literal(`${name}: ${part} ${seconds(planned)} predicted, ${seconds(measured)} measured`)),
    marker: { color: colour, symbol, size: 7, opacity: 0.7 }, hovertemplate: "%{text}<extra></extra>",
  }));
  const diagonal = {
    type: "scatter", mode: "lines", name: "as predicted", x: ends, y: ends, hoverinfo: "skip",
    line: { color: deadlineColour(), width: 2, dash: "dash" },
  };
  target.style.height = "340px";
  return drawChart(target, [...marks, diagonal], {
    showlegend: true, legend, hovermode: "closest", margin: { l: 52, r: 10, t: 8, b: 46 },
    xaxis: { title: { text: `predicted (${unit})`, standoff: 8 }, ...axis },
    yaxis: { title: { text: `measured (${unit})`, standoff: 6 }, ...axis },
  });
}
