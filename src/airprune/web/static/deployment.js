// The Deployment page: a fleet, or a run on real machines, as its cloud and its files know it; asked again every two seconds.

import { byId, dataTable, element, fixed, getJson, initialData, onThemeChange, say } from "./common.js";
import { drawArrivals, drawPredicted, seconds } from "./deployment-charts.js";

const ASK_EVERY_MS = 2_000;
const STATES = {
  idle: ["○ waits for a job", "open"], waiting: ["○ waits for nodes", "open"], running: ["● running", "fair"], ended: ["✓ ended", "good"],
};
const ALERTS = {
  cloud: ["✗ cloud", "bad"], missing: ["✗ missing", "bad"], refused: ["✗ refused", "bad"], deadline: ["▲ deadline", "fair"],
  certificate: ["▲ certificate", "fair"], software: ["▲ software", "fair"], model: ["▲ model", "fair"], job: ["✗ job", "bad"],
};
const JOBS = { queued: "open", running: "fair", stopping: "fair", ended: "good", failed: "bad", stopped: "open" };

const start = initialData();
const state = { of: start.chosen, job: start.job, answer: null, at: 0, drawn: "", shown: {} };

const day = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric" });
const moment = new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const times = (value) => (value === null || value === undefined ? "–" : `${fixed(value, 2)} ×`);
const badge = (words, kind) => element("span", { class: `badge ${kind}` }, words);
const date = (value, format = moment) => (value === null || value === undefined ? "–" : format.format(new Date(value * 1e3)));
/** Sign and colour of a device: one that is online and in an alert is neither well nor away. */
const mark = (node) => (!node.online ? ["✗", "bad"] : node.trouble ? ["▲", "fair"] : ["●", "good"]);
const online = (node) => badge(node.online ? "● online" : "✗ away", node.online ? "good" : "bad");

/** The server's time now. */
const now = () => state.answer.now_s + (performance.now() - state.at) / 1e3;

const lasting = (value) => (value < 120 ? seconds(value) : value < 7_200 ? `${fixed(value / 60)} min`
  : value < 172_800 ? `${fixed(value / 3_600)} h` : `${fixed(value / 86_400)} days`);

/** A median with its spread below it. */
function spread(found, scale, decimals) {
  if (!found) return "–";
  const of = (value) => fixed(value * scale, decimals(value * scale));
  return element("span", {}, of(found.median), " ", element("small", {}, `${of(found.low)}–${of(found.high)}`));
}
const threeDigits = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);

/** Puts content into a place unless it is what stands there already; a table keeps its scroll. */
function put(id, key, make) {
  const text = JSON.stringify(key);
  if (state.shown[id] === text) return;
  state.shown[id] = text;
  const place = byId(id);
  const old = place.querySelector(".scroll");
  const [top, left] = [old?.scrollTop ?? 0, old?.scrollLeft ?? 0];
  place.replaceChildren(...[make()].flat());
  const table = place.querySelector(".scroll");
  if (table) Object.assign(table, { scrollTop: top, scrollLeft: left });
}

// Parts -------------------------------------------------------------------------------------------------------------

function showState({ status, counts, run, trouble, jobs, is_fleet: isFleet }) {
  const age = status === null ? null : now() - status.updated_s;
  const isStale = status !== null && status.state !== "ended" && age > 10;
  const [word, kind] = status === null ? ["no status", "open"] : isStale ? ["✗ the cloud does not answer", "bad"] : STATES[status.state] ?? [status.state, "open"];
  say(byId("state"), word);
  byId("state").className = `badge ${kind}`;
  const federation = status?.federation ? `${isFleet ? "Fleet" : "Federation"} ${status.federation}. ` : "";
  say(byId("note"), [
    federation.trim(), trouble,
    isStale ? `The cloud's last status is ${lasting(age)} old; what follows is as it was then.` : "",
    status === null ? "There is no status.json that can be read, so no node is known to be online." : "",
    run?.num_spoilt ? `${run.num_spoilt === 1 ? "1 line" : `${fixed(run.num_spoilt)} lines`} of measured.jsonl cannot be read and are excluded.` : "",
    run && run.read_share < 1 ? `${fixed(100 * run.read_share)} % of measured.jsonl read so far.` : "",
  ].filter(Boolean).join(" "));
  const pair = (role) => `${fixed(counts.online[role])} of ${fixed(counts.nodes[role])}`;
  const current = jobs.find((job) => ["running", "stopping"].includes(job.state));
  const round = status?.global_round ? `${fixed(status.global_round)} of ${fixed(status.num_rounds)}` : "–";
  const { ok = 0, late = 0, refused = 0, dropped = 0, failed = 0 } = counts.uploads;
  const tiles = [
    ["devices online", pair("device")], ["edges online", pair("edge")],
    ...(isFleet ? [["job at work", current ? `${current.number}` : "–"], ["jobs queued", fixed(counts.jobs.queued ?? 0)]] : []),
    ["global round", round], ["edge rounds", fixed(counts.edge_rounds)], ["uploads in time", fixed(ok)], ["missed the deadline", fixed(late)],
    ["refused", fixed(refused)], ["dropped or failed", fixed(dropped + failed)],
    ...(isFleet ? [["newest model", counts.models ? `${counts.models}, on ${fixed(counts.holders)}` : "–"]] : []),
  ];
  put("tiles", tiles, () => tiles.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function showAlerts({ alerts }) {
  byId("alerts-none").hidden = alerts.length > 0;
  put("alerts", alerts, () => alerts.map(({ kind, node, words }) => element("li", {},
    badge(...(ALERTS[kind] ?? [kind, "open"])), element("span", {}, node === null ? null : element("b", {}, `${node} `), words))));
}

function showEdges({ nodes }) {
  const edges = nodes.filter((node) => node.role === "edge");
  const facts = nodes.map(({ name, role, edge, home, online: is, trouble }) => [name, role, edge, home, is, trouble]);
  put("edges", facts, () => edges.map((edge) => {
    const own = nodes.filter((node) => node.role === "device" && (node.edge ?? node.home) === edge.name);
    const here = own.filter((node) => node.online).length;
    return element("li", {}, element("h3", {}, element("span", {}, edge.name), online(edge)),
      element("p", { class: "note" }, own.length ? `${fixed(here)} of ${fixed(own.length)} devices online` : "standby: no devices"),
      element("ul", { tabindex: "0", "aria-label": `Devices of ${edge.name}` }, ...own.map((node) => element("li", {},
        badge(`${mark(node)[0]} ${node.name}${node.home && node.home !== edge.name ? ` (home ${node.home})` : ""}`, mark(node)[1])))));
  }));
}

function showFleet({ nodes, status, is_fleet: isFleet }) {
  const rows = () => nodes.map((node) => [
    node.name, node.role, node.home ?? "–", status === null ? "–" : online(node),
    node.online ? "now" : node.seen_s === null ? "never" : `${lasting(Math.max(0, now() - node.seen_s))} ago`,
    seconds(node.rtt_s), spread(node.speed, 1e3, threeDigits), spread(node.rate, 1e-6, threeDigits),
    fixed(node.late), fixed(node.refused), node.last_fate ?? "–", ...(isFleet ? [node.model ? fixed(node.model) : "–"] : []),
    node.software ? element("code", { title: node.software }, node.software.slice(0, 8)) : "–", date(node.expires_s, day),
  ]);
  const header = ["node", "role", "home edge", "online", "last seen", "RTT", "ms per sample", "Mbit/s", "late", "refused", "last outcome",
    ...(isFleet ? ["model"] : []), "software", "certificate until"];
  const [outcome, software] = [10, header.indexOf("software")];
  // Times since somebody was seen change by themselves: the table is made again every quarter of a minute at the most.
  put("fleet", [nodes, status === null, Math.floor(now() / 15)], () => dataTable(header, rows(), {
    words: [0, 1, 2, 3, outcome, software, software + 1],
    caption: `${nodes.length === 1000 ? "The first 1,000 nodes" : "Nodes"}. Speed (whole model) and rate (whole bandwidth): median and p10–p90 of the last 50 uploads`,
  }));
}

function showJobs({ jobs, is_fleet: isFleet }) {
  byId("jobs-panel").hidden = !isFleet;
  const took = (job) => (job.started_s === null ? "–" : lasting((job.ended_s ?? now()) - job.started_s));
  put("jobs", [jobs, Math.floor(now() / 15)], () => (jobs.length === 0
    ? element("p", { class: "note" }, "No job was submitted yet: ", element("code", {}, "airprune deploy submit KIT SCENARIO"))
    : dataTable(["job", "scenario", "state", "submitted", "took", "delivers", "run", "reason"], jobs.map((job) => [
      fixed(job.number), job.name, badge(job.state, JOBS[job.state] ?? "open"), date(job.submitted_s), took(job), job.deliver || "–",
      job.run === null ? "–" : element("a", { href: `/runs?${new URLSearchParams({ run: job.run })}` }, "accuracy"), job.reason || "–",
    ]), { words: [1, 2, 3, 5, 6, 7], caption: jobs.length === 100 ? "The last 100 jobs" : "Jobs, the newest first" })));
}

function showRounds({ run, nodes, jobs }) {
  const begun = jobs.filter((job) => job.run !== null);
  byId("which-job").hidden = begun.length < 2;
  put("job", [begun.map((job) => job.number), run?.job], () => begun.map((job) => element("option", { value: job.number, selected: job.number === run?.job }, `${job.number}: ${job.name}`)));
  byId("run-link").hidden = run === null || run.num_points === 0;
  if (run !== null) byId("run-link").href = `/runs?${new URLSearchParams({ run: run.name })}`;
  const total = run?.num_points ?? 0;
  const drawn = run?.points.length ?? 0;
  const thinned = drawn < total ? ` ${fixed(drawn)} of ${fixed(total)} uploads are drawn, evenly spaced.` : "";
  say(byId("rounds-note"), total === 0 ? "No edge round is over yet."
    : `${run.job === null ? "This run" : `Job ${run.job}`}: ${fixed(run.fates.ok ?? 0)} of ${fixed(total)} uploads were in time, in ${fixed(run.num_rounds)} edge rounds; measured time ${seconds(run.measured_s)}.${thinned}`);
  byId("charts").hidden = total === 0;
  const range = (found) => (found === null ? "nothing was measured" : `median ${times(found.median)}, p10–p90 ${fixed(found.low, 2)}–${fixed(found.high, 2)}`);
  say(byId("predicted-note"), total === 0 ? "" : `Measured over planned: compute ${range(run.compute)}; uplink ${range(run.uplink)}.`);
  const measured = nodes.filter((node) => node.num_uploads);
  put("times", measured, () => (measured.length === 0 ? [] : dataTable(
    ["device", "uploads", "late", "compute, planned", "measured", "ratio", "uplink, planned", "measured", "ratio"],
    measured.map((node) => [node.name, fixed(node.num_uploads), fixed(node.late), seconds(node.planned_compute_s), seconds(node.compute_s), times(node.compute_ratio),
      seconds(node.planned_uplink_s), seconds(node.uplink_s), times(node.uplink_ratio)]),
    { words: [0], caption: "Planned and measured times of each device, medians of the last 50 uploads" })));
  const rounds = run?.rounds ?? [];
  put("rounds", rounds, () => (rounds.length === 0 ? [] : dataTable(
    ["edge round", "global round", "deadline", "last arrival", "in time", "late", "refused", "dropped or failed"],
    rounds.map(({ round, global_round: global, deadline_s: deadline, last_s: last, fates }) => [fixed(round + 1), fixed(global), seconds(deadline), seconds(last),
      fixed(fates.ok ?? 0), fixed(fates.late ?? 0), fixed(fates.refused ?? 0), fixed((fates.dropped ?? 0) + (fates.failed ?? 0))]),
    { caption: rounds.length === 200 ? "The last 200 edge rounds" : "Edge rounds, the newest first" })));
}

function drawCharts() {
  const { run } = state.answer;
  if (run === null || run.num_points === 0) return;
  const at = Object.fromEntries(run.columns.map((name, i) => [name, i]));
  drawArrivals(byId("arrivals"), run.points, at);
  drawPredicted(byId("predicted"), run.points, at);
}

function showModels({ models, counts, is_fleet: isFleet }) {
  byId("models-panel").hidden = !isFleet;
  const all = counts.nodes.device + counts.nodes.edge;
  const holders = (model) => (model.num_holders === 0 ? "none" : `${fixed(model.num_holders)} of ${fixed(all)}: ${model.holders.join(", ")}`);
  put("models", [models, all], () => (models.length === 0
    ? element("p", { class: "note" }, "No model was delivered yet: ", element("code", {}, "airprune deploy deliver KIT JOB"))
    : dataTable(["version", "job", "model", "delivered", "for", "held by"], models.map((model) => [
      fixed(model.version), fixed(model.job), model.which, date(model.created_s), model.devices.join(", ") || "all", holders(model),
    ]), { words: [2, 3, 4, 5], caption: "Versions, the newest first" })));
}

function show() {
  const { answer } = state;
  byId("some").hidden = answer === null;
  byId("none").hidden = answer !== null || state.of !== null;
  if (answer === null) return;
  for (const part of [showState, showAlerts, showEdges, showFleet, showJobs, showRounds, showModels]) part(answer);
  const key = `${answer.run?.name}\n${answer.run?.num_points}`;
  if (key !== state.drawn) { state.drawn = key; drawCharts(); }
}

// Live --------------------------------------------------------------------------------------------------------------

function take(answer) {
  if (answer.name === undefined) return; // nothing new
  state.answer = answer;
  state.at = performance.now();
}

function tell(words) {
  say(byId("error"), words ?? "");
  byId("error").hidden = !words;
}

async function ask() {
  const { of, job } = state;
  try {
    if (of === null) {
      const { deployments } = await getJson("/api/deployments");
      if (deployments.length) { state.of = deployments[0]; fillChoice(deployments); await ask(); }
      return;
    }
    const query = { of, ...(job === null ? {} : { job }), ...(state.answer === null ? {} : { known: state.answer.version }) };
    const answer = await getJson(`/api/deployment?${new URLSearchParams(query)}`);
    if (of !== state.of || job !== state.job) return;
    tell(null);
    take(answer);
  } catch (error) {
    tell(error.message);
  }
  show();
}

async function follow() {
  if (!document.hidden) await ask();
  setTimeout(follow, ASK_EVERY_MS);
}

function choose(change) {
  Object.assign(state, change, { answer: null, shown: {}, drawn: "" });
  const query = { of: state.of, ...(state.job === null ? {} : { job: state.job }) };
  history.replaceState(null, "", `?${new URLSearchParams(query)}`);
  ask();
}

function fillChoice(names) {
  const known = state.of === null || names.includes(state.of) ? names : [state.of, ...names];
  byId("which").hidden = known.length < 2;
  byId("of").replaceChildren(...known.map((name) => element("option", { value: name, selected: name === state.of }, name)));
}

byId("of").addEventListener("change", () => choose({ of: byId("of").value, job: null }));
byId("job").addEventListener("change", () => choose({ job: Number(byId("job").value) }));
onThemeChange(() => state.answer && drawCharts());
fillChoice(start.deployments);
if (start.answer !== null) take(start.answer);
tell(start.error);
show();
setTimeout(follow, ASK_EVERY_MS);
