// A run on real machines: who is there, when uploads arrived, how good the predictions were.

import { byId, dataTable, drawChart, element, fixed, getJson, isDark, onGround, say } from "./common.js";
import { literal } from "./runs-charts.js";

const STALE_AFTER_S = 10;
const DEADLINE = { light: "#B03A00", dark: "#ff9d6b" };
const PARTS = [["compute", "#E69F00", "circle"], ["uplink", "#0072B2", "square"]];
const FATES = [
  ["ok", "in time", "#0072B2", "circle"], ["late", "late", "#D55E00", "triangle-up"], ["refused", "refused", "#CC79A7", "diamond"],
  ["failed", "failed", "#009E73", "square"], ["dropped", "dropped", "#7a828a", "x"], ["other", "other", "#7a828a", "star"],
];
const STATES = { waiting: ["○ waiting for nodes", "open"], running: ["● running", "fair"], ended: ["✓ ended", "good"] };

const seconds = (value) => (value === null || value === undefined ? "–" : value < 1 ? `${fixed(value * 1e3, value < 0.1 ? 1 : 0)} ms`
  : value < 120 ? `${fixed(value, 1)} s` : `${fixed(value / 60)} min`);
const times = (value) => (value === null || value === undefined ? "–" : `${fixed(value, 2)} ×`);
const legend = { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 12 }, itemclick: false, itemdoubleclick: false };
const deadlineColour = () => (isDark() ? DEADLINE.dark : DEADLINE.light);

/** The unit in which the largest of some times is best read: [factor, name]. */
const unitOf = (largest) => (largest < 1 ? [1e3, "ms"] : [1, "s"]);

/** One mark per upload by edge round, and the deadline; those that never came stand on a line of their own above. */
function drawArrivals(target, points, at) {
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
function drawPredicted(target, points, at) {
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

function nodesTable(nodes, hasStatus) {
  const rows = nodes.map((node) => [
    node.name, node.role, node.edge ?? "–",
    hasStatus ? element("span", { class: `badge ${node.online ? "good" : "bad"}` }, node.online ? "● online" : "✗ away") : "–",
    node.seen_s_ago === null ? "–" : `${seconds(node.seen_s_ago)} ago`, seconds(node.rtt_s), fixed(node.late), fixed(node.refused),
    node.last_fate ?? "–", times(node.compute), times(node.uplink),
  ]);
  return dataTable(["node", "role", "edge", "online", "last seen", "RTT", "late", "refused", "last fate", "compute", "uplink"], rows,
    { words: [0, 1, 2, 3, 8], caption: `${rows.length === 1000 ? "The first 1,000 nodes" : "Nodes"}; compute and uplink: measured / predicted, median` });
}

const range = (spread) => (spread === null ? "nothing was measured" : `median ${times(spread.median)}, p10–p90 ${fixed(spread.low, 2)}–${fixed(spread.high, 2)}`);

/** The panel of the run that is looked at; hidden for runs that were simulated. */
export class DeploymentPanel {
  constructor() {
    this.wanted = null;
    this.answer = null;
    this.drawn = null;
    this.asked = null; // the version that the answer is of, or a later one
    this.isAsking = false;
    setInterval(() => this.say(), 2_000); // a cloud that falls silent changes no file
  }

  /** Shows this run as of this version; nothing if there is none. */
  show(name, version) {
    this.wanted = version === null ? null : { name, version };
    if (this.wanted === null || this.answer?.name !== name) byId("deployment").hidden = true;
    if (this.wanted === null) return;
    if (this.answer?.name === name) byId("deployment").hidden = false;
    if (this.isNews()) this.ask();
  }

  /** Whether what is wanted has not been asked for. */
  isNews() {
    const { answer, asked, wanted } = this;
    return wanted !== null && (answer?.name !== wanted.name || ![asked, answer.version].includes(wanted.version));
  }

  async ask() {
    if (this.isAsking) return;
    this.isAsking = true;
    const { name, version } = this.wanted;
    this.asked = version;
    try {
      this.answer = { ...await getJson(`/api/runs/deployment?${new URLSearchParams({ run: name })}`), at: performance.now() };
    } catch { // it is gone, or the server is, which the page says elsewhere
      this.answer = this.wanted = null;
    } finally {
      this.isAsking = false;
    }
    if (this.wanted === null) return;
    if (this.isNews()) this.ask();
    if (this.answer.name !== this.wanted.name) return;
    byId("deployment").hidden = false;
    this.say();
    const key = `${this.answer.name}\n${this.answer.num_points}`;
    if (key !== this.drawn) { this.drawn = key; this.draw(); }
  }

  /** All but the charts. */
  say() {
    const { answer } = this;
    if (answer === null || byId("deployment").hidden) return;
    const { status, fates } = answer;
    const age = status === null ? null : status.age_s + (performance.now() - answer.at) / 1e3;
    const isStale = status !== null && status.state !== "ended" && age > STALE_AFTER_S;
    const [word, kind] = status === null ? ["", "open"] : isStale ? ["✗ the cloud does not answer", "bad"] : STATES[status.state] ?? [status.state, "open"];
    say(byId("deployment-state"), word);
    byId("deployment-state").className = `badge ${kind}`;
    const notes = [
      isStale ? `The cloud's last word is ${seconds(age)} old; it writes every second while it runs.` : "",
      status === null ? "There is no status.json that can be read, so no node is known to be online." : "",
      answer.num_spoilt ? `${answer.num_spoilt === 1 ? "1 line" : `${fixed(answer.num_spoilt)} lines`} of measured.jsonl cannot be read and are excluded.` : "",
      answer.read_share < 1 ? `${fixed(100 * answer.read_share)} % of measured.jsonl read so far.` : "",
    ].filter(Boolean);
    say(byId("deployment-note"), notes.join(" "));
    const online = (pair) => (pair ? `${fixed(pair[0])} of ${fixed(pair[1])}` : "–");
    const round = status?.global_round ? `${fixed(status.global_round)} of ${fixed(status.num_rounds)}` : "–";
    const tiles = [
      ["devices online", online(status?.devices)], ["edges online", online(status?.edges)], ["global round", round],
      ["uploads in time", fixed(fates.ok ?? 0)], ["late", fixed(fates.late ?? 0)], ["refused", fixed(fates.refused ?? 0)],
      ["dropped or failed", fixed((fates.dropped ?? 0) + (fates.failed ?? 0))],
      ["measured time", seconds(answer.measured_s)], ["compute ÷ predicted", times(answer.compute?.median)], ["uplink ÷ predicted", times(answer.uplink?.median)],
    ];
    const text = JSON.stringify(tiles);
    if (text !== this.tiles) {
      this.tiles = text;
      byId("deployment-tiles").replaceChildren(...tiles.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    }
    const nodes = JSON.stringify([answer.nodes, status === null]);
    if (nodes !== this.nodes) {
      this.nodes = nodes;
      const old = byId("nodes").firstElementChild;
      const [top, left] = [old?.scrollTop ?? 0, old?.scrollLeft ?? 0];
      const table = nodesTable(answer.nodes, status !== null);
      byId("nodes").replaceChildren(table);
      table.scrollTop = top;
      table.scrollLeft = left;
    }
  }

  /** The charts. */
  draw() {
    const { answer } = this;
    if (answer === null || byId("deployment").hidden) return;
    const { points, columns, num_points: total } = answer;
    const at = Object.fromEntries(columns.map((name, i) => [name, i]));
    const thinned = points.length < total ? ` ${fixed(points.length)} of ${fixed(total)} uploads are drawn, evenly spaced.` : "";
    const inTime = answer.fates.ok ?? 0;
    say(byId("arrivals-note"), total === 0 ? "No edge round is over yet." : `${fixed(inTime)} of ${fixed(total)} uploads were in time.${thinned}`);
    say(byId("predicted-note"), total === 0 ? "" : `Compute: ${range(answer.compute)}. Uplink: ${range(answer.uplink)}.`);
    byId("arrivals").hidden = byId("predicted").hidden = total === 0;
    if (total === 0) return;
    drawArrivals(byId("arrivals"), points, at);
    drawPredicted(byId("predicted"), points, at);
  }
}
