// The runs page: a list to choose from, curves that grow while a run writes, one edge round and coverage up close.

import {
  byId, dataTable, element, fixed, getJson, hasToken, initialData, onThemeChange, say, sendJson, site, told, toldWithUnit,
} from "./common.js";
import {
  coverageTable, devicesTable, drawCoverage, drawCurves, drawDevices, stylesOf,
} from "./runs-charts.js";
import { coloursOf, firstKey } from "./runs-colours.js";
import { drawGroups, fillChoices, groupNotes, Groups, groupsTable } from "./runs-groups.js";
import { connectStart } from "./runs-start.js";

const start = initialData();
const { columns, measures } = start;
const column = (row, name) => row[columns.indexOf(name)];
const rows = new Map(start.runs.map((row) => [row.name, row]));
const curves = new Map(start.curves.map((curve) => [curve.name, curve]));
const mayRun = site.allow_run && hasToken();
const narrow = matchMedia("(max-width: 600px)");

/** A test accuracy from 0 to 1, or null. */
function shareIn(text) {
  const value = (text ?? "").trim() === "" ? NaN : Number(text);
  return value >= 0 && value <= 1 ? value : null;
}

const asked = new URLSearchParams(location.search);
const state = {
  chosen: asked.has("match") ? [] : start.chosen,
  byDefault: !asked.has("run") && !asked.has("match"),
  measure: start.drawn.includes(asked.get("measure")) ? asked.get("measure") : "test_accuracy",
  against: start.axes.includes(asked.get("against")) ? asked.get("against") : "global_round",
  target: shareIn(asked.get("target")),
  match: asked.get("match"),
  group: asked.get("group") ?? (asked.has("match") ? "seeds" : "each"),
  colour: asked.get("colour") ?? "auto",
  log: { x: asked.get("log")?.includes("x") ?? false, y: asked.get("log")?.includes("y") ?? false },
  look: asked.get("look"),
  round: /^\d{1,7}\.\d{1,7}$/.test(asked.get("round") ?? "") ? asked.get("round").split(".").map(Number) : null,
  about: start,
  work: start.work,
};

// The address -------------------------------------------------------------------------------------------------------

function rememberInAddress() {
  const parameters = new URLSearchParams();
  state.chosen.forEach((name) => parameters.append("run", name));
  if (state.measure !== "test_accuracy") parameters.set("measure", state.measure);
  if (state.against !== "global_round") parameters.set("against", state.against);
  if (state.target !== null) parameters.set("target", state.target);
  if (state.match !== null) parameters.set("match", state.match);
  if (state.group !== (state.match === null ? "each" : "seeds")) parameters.set("group", state.group);
  if (state.colour !== "auto") parameters.set("colour", state.colour);
  if (state.log.x || state.log.y) parameters.set("log", `${state.log.x ? "x" : ""}${state.log.y ? "y" : ""}`);
  if (looked() && looked() !== state.chosen[0]) parameters.set("look", looked());
  if (state.round) parameters.set("round", state.round.join("."));
  const text = parameters.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

// The list ----------------------------------------------------------------------------------------------------------

const items = new Map();
const MAX_ITEMS = 300;
const BADGES = {
  running: ["● running", "fair"], finished: ["✓ finished", "good"], diverged: ["✗ diverged", "bad"], stopped: ["◼ stopped", "open"],
};

function age(seconds) {
  if (seconds < 60) return "just now";
  const [value, unit] = seconds < 3600 ? [seconds / 60, "min"] : seconds < 86400 ? [seconds / 3600, "h"] : [seconds / 86400, "d"];
  return `${Math.floor(value)} ${unit} ago`;
}

function factsOf(row) {
  const done = row.rounds_total === null ? `${fixed(row.rounds_done)} rounds` : `round ${fixed(row.rounds_done)} of ${fixed(row.rounds_total)}`;
  const accuracy = row.test_accuracy === null ? null : toldWithUnit(measures.test_accuracy, row.test_accuracy, 1);
  const scheme = row.scheme === null ? `scenario cannot be read${row.trouble ? `: ${row.trouble}` : ""}` : `${row.scheme} · ${row.scenario} · ${row.data} · seed ${row.seed}`;
  return [scheme, done, accuracy, age(Date.now() / 1e3 - row.written)].filter(Boolean).join(" · ");
}

function newItem(name) {
  const box = element("input", { type: "checkbox" });
  const swatch = element("span", { class: "swatch", "aria-hidden": "true", hidden: true });
  const title = element("span", { class: "name" }, swatch, name === "." ? "(this folder)" : name);
  const facts = element("span");
  const badge = element("span", { class: "badge" });
  const action = element("button", { type: "button", class: "quiet", hidden: true });
  const item = element("li", { class: "run" },
    element("label", {}, box, title, element("span", { class: "facts" }, badge, " ", facts)), action);
  box.addEventListener("change", () => choose(name, box.checked));
  action.addEventListener("click", () => (action.dataset.do === "stop" ? stop() : resume(name)));
  return { item, box, swatch, facts, badge, action };
}

function showItem(name, styles) {
  const row = rows.get(name);
  if (!items.has(name)) items.set(name, newItem(name));
  const parts = items.get(name);
  const chosen = state.chosen.includes(name);
  parts.item.classList.toggle("chosen", chosen);
  parts.box.checked = chosen;
  parts.box.disabled = !chosen && state.chosen.length >= start.max_compared;
  say(parts.facts, factsOf(row));
  const [word, kind] = BADGES[row.state];
  say(parts.badge, word);
  parts.badge.className = `badge ${kind}`;
  const style = styles.get(name);
  parts.swatch.hidden = !style;
  if (style) {
    parts.swatch.style.borderTopColor = style.colour === "#000000" ? "currentColor" : style.colour;
    parts.swatch.style.borderTopStyle = style.dash === "solid" ? "solid" : style.dash === "dot" ? "dotted" : "dashed";
  }
  const atWork = ["running", "stopping"].includes(state.work.state);
  const stops = mayRun && atWork && state.work.name === name;
  parts.action.hidden = !(stops || (mayRun && row.state === "stopped" && !atWork));
  parts.action.dataset.do = stops ? "stop" : "resume";
  say(parts.action, stops ? (state.work.state === "stopping" ? "Stop at once" : "Stop") : "Resume");
  parts.action.setAttribute("aria-label", `${parts.action.textContent} ${name}`);
  return parts.item;
}

const shownNames = () => namesWith(byId("filter").value);

/** The server's rule for `match` is the same. */
function namesWith(given) {
  const words = given.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => `${row.name} ${row.scheme} ${row.scenario} ${row.data} seed${row.seed} ${row.state}`.toLowerCase();
  const first = (row) => (row.state === "running" ? 0 : 1);
  return [...rows.values()].filter((row) => words.every((word) => text(row).includes(word)))
    .sort((a, b) => first(a) - first(b) || b.written - a.written || (a.name < b.name ? -1 : 1)).map((row) => row.name);
}

function showList() {
  const list = byId("list");
  const styles = runStyles();
  const names = shownNames();
  const wanted = names.slice(0, MAX_ITEMS).map((name) => showItem(name, styles));
  if (wanted.length !== list.children.length || wanted.some((item, i) => list.children[i] !== item)) {
    const focused = document.activeElement;
    list.replaceChildren(...wanted);
    if (list.contains(focused)) focused.focus();
  }
  for (const name of items.keys()) if (!rows.has(name)) items.delete(name);
  byId("none").hidden = rows.size > 0;
  byId("some").hidden = rows.size === 0;
  const count = rows.size === 1 ? "1 run" : `${fixed(rows.size)} runs`;
  const where = site.runs_dir === "." ? "this folder" : site.runs_dir;
  say(byId("where"), `${rows.size ? count : "Nothing"} in ${where}.`);
  const isMatch = state.match !== null;
  say(byId("num-chosen"), isMatch ? `All ${fixed(namesWith(state.match).length)} ${state.match ? `with “${state.match}” ` : ""}compared`
    : `${state.chosen.length} of at most ${start.max_compared} chosen`);
  byId("clear").disabled = state.chosen.length === 0 && !isMatch;
  byId("all").disabled = names.length < 2;
  say(byId("all"), `Compare all ${fixed(names.length)} shown`);
  const left = state.about.num_left_out;
  const notes = [
    names.length > MAX_ITEMS ? `${fixed(names.length - MAX_ITEMS)} more have these words; filter by more of them, or compare all.` : "",
    left ? `${fixed(left)} older runs are not listed.` : "",
    state.about.is_complete ? "" : "There are too many folders to look into all of them.",
  ].filter(Boolean).join(" ");
  say(byId("list-note"), notes);
  byId("list-note").hidden = !notes;
}

function choose(name, isChosen) {
  if (state.match !== null) { state.match = null; state.group = "each"; }
  state.chosen = isChosen ? [...state.chosen, name] : state.chosen.filter((other) => other !== name);
  state.byDefault = false;
  byId("notice").hidden = true;
  chosenChanged();
}

function chosenChanged() {
  for (const name of curves.keys()) if (!state.chosen.includes(name)) curves.delete(name);
  if (!state.chosen.includes(state.look)) { state.look = null; state.round = null; }
  rememberInAddress();
  showAll();
  listen();
  showDifferences();
}

// Curves ------------------------------------------------------------------------------------------------------------

const drawable = () => state.chosen.filter((name) => curves.get(name)?.rows);

const comparedNames = () => (state.match === null ? state.chosen : namesWith(state.match));

/** Measures as they are called for the runs that are shown: a deployment's times are planned, not simulated. */
function shownMeasures() {
  const kinds = new Set(comparedNames().map((name) => (rows.get(name)?.is_deployed ? "deployed" : "simulated")));
  return { ...measures, time_s: start.times[kinds.size > 1 ? "mixed" : [...kinds][0] ?? "simulated"] };
}

const isGrouped = () => state.match !== null || (state.group !== "each" && state.chosen.length > 0);
const groups = new Groups((sentence) => tell(sentence));
let differing = start.differences; // of the chosen runs: key → values, by name

/** Colours by the key asked for, or by what differs; schemes that differ have the report's. */
function runStyles() {
  const keys = Object.keys(differing.keys);
  const key = state.colour === "auto" || !keys.includes(state.colour) ? firstKey(keys) : state.colour;
  if (key === null || key === "plan.scheme" || state.chosen.some((name) => !differing.names.includes(name))) {
    return stylesOf(state.chosen, rows, state.about.styles);
  }
  const colours = coloursOf(key, differing.keys[key], state.about.styles);
  const byRun = new Map(differing.names.map((name, i) => [name, colours.get(differing.keys[key][i])]));
  return stylesOf(state.chosen, rows, state.about.styles, byRun);
}

const axes = () => Object.fromEntries(["x", "y"].map((name) => [name, state.log[name] ? { type: "log", tickformat: null, dtick: null } : {}]));

function showChoices() {
  const keys = isGrouped() ? groups.answer?.keys ?? [] : Object.keys(differing.keys);
  const together = keys.filter((key) => key !== "seed" && key !== "name");
  const own = state.group === "each" || state.group === "seeds" || together.includes(state.group) ? [] : [state.group];
  fillChoices("group", [["each", "each run"], ["seeds", "seeds together"], ...[...together, ...own].map((key) => [key, `by ${key}`])], state.group);
  const colour = state.colour === "auto" || keys.includes(state.colour) ? [] : [state.colour];
  byId("against").querySelector("[value=time_s]").textContent = shownMeasures().time_s.axis_label;
  fillChoices("colour", [["auto", "what differs"], ...[...keys, ...colour].map((key) => [key, key])], state.colour);
}

function showGroups() {
  const names = comparedNames();
  const version = names.map((name) => `${name} ${rows.get(name)?.rounds_done} ${rows.get(name)?.state}`).join("\n");
  void groups.ask({ match: state.match, names, group: state.group, target: state.target, version }, showCurves);
  const { answer } = groups;
  const drawn = answer?.groups.some((group) => group.mean.length > 0) ?? false;
  byId("curves").hidden = !drawn;
  byId("curves-empty").hidden = drawn;
  say(byId("curves-empty"), answer ? "No global round is finished yet; the curves start with the first one." : `Reading ${fixed(names.length)} runs …`);
  if (drawn) {
    drawGroups(byId("curves"), answer, { ...state, columns, measures: shownMeasures(), narrow: narrow.matches, styles: state.about.styles, axes: axes() });
  }
  replaceTable(byId("last-rounds"), answer ? groupsTable(answer, { told: start.told, toTarget: start.to_target, measures: shownMeasures(), target: state.target }) : null);
  byId("curves-notes").replaceChildren(...(answer ? groupNotes(answer) : []).map((note) => element("li", {}, note)));
  showChoices();
  showLive();
  if (byId("points").open) showPoints();
}

function showCurves() {
  if (isGrouped()) {
    showGroups();
    return;
  }
  groups.clear();
  showChoices();
  const styles = runStyles();
  const runs = drawable().map((name) => ({ name, rows: curves.get(name).rows, style: styles.get(name) }));
  const withRounds = runs.filter((run) => run.rows.length > 0);
  byId("curves").hidden = withRounds.length === 0;
  byId("curves-empty").hidden = withRounds.length > 0;
  say(byId("curves-empty"), state.chosen.length === 0 ? (rows.size ? "Choose one or more runs to draw their curves." : "")
    : "No global round is finished yet; the curve starts with the first one.");
  if (withRounds.length) {
    drawCurves(byId("curves"), withRounds, { ...state, columns, measures: shownMeasures(), narrow: narrow.matches, axes: axes() });
  }
  showLastRounds(withRounds);
  askForReached(withRounds);
  showNotes(runs);
  showLive();
  if (byId("points").open) showPoints();
}

function showLastRounds(runs) {
  const table = runs.map(({ name, rows: points }) => {
    const last = points[points.length - 1];
    const row = rows.get(name);
    return [name, row?.scheme ?? "–", row?.seed ?? "–", fixed(column(last, "global_round")),
      ...start.told.map((measure) => told(measures[measure], column(last, measure))),
      ...(state.target === null ? [] : start.to_target.map((measure) => reachedWords(name, measure)))];
  });
  const toTarget = state.target === null ? [] : start.to_target.map((measure) => measures[measure].heading);
  const header = ["run", "scheme", "seed", "round", ...start.told.map((measure) => shownMeasures()[measure].brief), ...toTarget];
  const clocks = [...new Set(runs.map(({ name }) => rows.get(name)?.clock).filter(Boolean))];
  const caption = clocks.length ? `Last global round; clock: ${clocks.join("; ")}` : "Last global round";
  replaceTable(byId("last-rounds"), table.length ? dataTable(header, table, { words: [0, 1], caption }) : null);
}

// What it took to reach the target, as last answered: run → costs; and the question that it answers.
let reached = { key: "", runs: new Map() };

function reachedWords(name, measure) {
  const found = reached.runs.get(name);
  if (!found || found.reached === null) return "–";
  if (found.reached) return told(measures[measure], found[measure]);
  return ["finished", "diverged"].includes(rows.get(name)?.state) ? "not reached" : "not yet";
}

/** Asks again whenever the target, the runs or their rounds have changed. */
async function askForReached(runs) {
  const key = state.target === null ? "" : `${state.target}\n${runs.map(({ name, rows: points }) => `${name} ${points.length} ${curves.get(name).num_bytes}`).join("\n")}`;
  if (key === reached.key) return;
  const before = reached.target === state.target ? reached.runs : new Map();
  reached = { key, target: state.target, runs: before };
  if (key === "" || runs.length === 0) return;
  const query = new URLSearchParams([["target", state.target], ...runs.map(({ name }) => ["run", name])]);
  try {
    const answer = await getJson(`/api/runs/reached?${query}`);
    if (reached.key !== key) return;
    reached.runs = new Map(answer.runs.map((run) => [run.name, run]));
    showLastRounds(runs);
  } catch (error) {
    tell(error.message);
  }
}

/** Keeps the place to which a table was scrolled. */
function replaceTable(target, table) {
  const old = target.firstElementChild;
  const [top, left] = [old?.scrollTop ?? 0, old?.scrollLeft ?? 0];
  target.replaceChildren(...(table ? [table] : []));
  if (table) { table.scrollTop = top; table.scrollLeft = left; }
}

function showNotes(runs) {
  const notes = [];
  for (const name of state.chosen) {
    const curve = curves.get(name);
    if (!curve) continue;
    if (curve.gone) notes.push(`${name} is no longer there.`);
    else {
      if (curve.num_spoilt) notes.push(`${name}: ${curve.num_spoilt === 1 ? "1 line" : `${fixed(curve.num_spoilt)} lines`} of records.jsonl cannot be read and are excluded.`);
      if (curve.is_thinned) notes.push(`${name}: ${fixed(curve.num_rounds)} global and ${fixed(curve.num_edge_rounds)} edge rounds, of which at most 1,000 each are drawn, evenly spaced.`);
      if (curve.num_bytes_read < curve.num_bytes) notes.push(`${name}: ${fixed(100 * curve.num_bytes_read / curve.num_bytes)} % of ${fixed(curve.num_bytes / 1e6)} MB read so far.`);
    }
  }
  const without = runs.filter((run) => run.rows.length === 0).map((run) => run.name);
  if (without.length && without.length < runs.length) notes.push(`No global round is finished yet: ${without.join(", ")}.`);
  byId("curves-notes").replaceChildren(...notes.map((note) => element("li", {}, note)));
}

function showLive() {
  const words = state.chosen.filter((name) => rows.get(name)?.state === "running").map((name) => {
    const row = rows.get(name);
    const { test_accuracy: about } = measures;
    const accuracy = row.test_accuracy === null ? "" : `, ${about.label} ${toldWithUnit(about, row.test_accuracy, 1)}`;
    return `${name}: round ${fixed(row.rounds_done)} of ${fixed(row.rounds_total)}${accuracy}.`;
  });
  say(byId("live"), words.join(" "));
}

function showPoints() {
  const [axis, drawn] = [shownMeasures()[state.against], measures[state.measure]];
  const series = isGrouped() ? (groups.answer?.groups ?? []).map((group) => [group.label, group.mean])
    : drawable().map((name) => [name, curves.get(name).rows]);
  const table = series.flatMap(([name, points]) => points.map((row) => {
    const [x, y] = [column(row, state.against), column(row, state.measure)];
    return [name, x === null ? "–" : String(+(x * axis.axis_scale).toPrecision(6)), y === null ? "–" : String(+y.toPrecision(6))];
  }));
  const shown = table.slice(0, 2000);
  const caption = table.length > shown.length ? `The first 2,000 of ${fixed(table.length)} points` : "All points";
  replaceTable(byId("points-table"), dataTable(["run", axis.axis_label, drawn.axis_label], shown, { words: [0], caption }));
}

// One run up close --------------------------------------------------------------------------------------------------

const looked = () => (state.chosen.includes(state.look) ? state.look : state.chosen[0] ?? null);
const entriesOf = (name) => curves.get(name)?.edges ?? [];
let asking = null;
let shownDevices = null;

function showOneRun() {
  const name = looked();
  const entries = name === null ? [] : entriesOf(name);
  byId("one-run").hidden = entries.length === 0;
  if (entries.length === 0) return;
  const select = byId("look");
  if ([...select.options].map((option) => option.value).join("\n") !== state.chosen.join("\n")) {
    select.replaceChildren(...state.chosen.map((other) => element("option", { value: other }, other)));
  }
  select.value = name;
  const round = state.round ?? entries[entries.length - 1].slice(0, 2);
  byId("newest").setAttribute("aria-pressed", String(state.round === null));
  for (const [id, value] of [["global-round", round[0]], ["edge-round", round[1]]]) {
    if (document.activeElement !== byId(id)) byId(id).value = value;
  }
  const at = entries.findIndex((entry) => entry[0] === round[0] && entry[1] === round[1]);
  byId("previous").disabled = at === 0;
  byId("next").disabled = at === entries.length - 1;
  askForDevices(name, round);
  showCoverage(entries);
}

async function askForDevices(name, round) {
  const key = `${name}\n${round.join(".")}`;
  if (asking?.key === key || shownDevices?.key === key) return;
  asking?.controller.abort();
  const controller = new AbortController();
  asking = { key, controller };
  const query = new URLSearchParams({ run: name, global_round: round[0], edge_round: round[1] });
  try {
    const answer = await getJson(`/api/runs/devices?${query}`, { signal: controller.signal });
    shownDevices = { key, name, answer };
    showDevices();
  } catch (error) {
    if (error.name === "AbortError") return;
    shownDevices = null;
    byId("devices").hidden = byId("devices-all").hidden = true;
    say(byId("devices-note"), error.message);
  } finally {
    if (asking?.key === key) asking = null;
  }
}

function showDevices() {
  if (!shownDevices) return;
  const { name, answer } = shownDevices;
  const left = new Map();
  answer.fate.forEach((fate) => { if (fate !== "ok") left.set(fate, (left.get(fate) ?? 0) + 1); });
  const gone = [...left].map(([fate, count]) => `${fixed(count)} ${fate}`).join(", ");
  const sampled = answer.num_devices > answer.num_recorded ? `, a random sample of ${fixed(answer.num_recorded)} of ${fixed(answer.num_devices)} devices` : "";
  const many = answer.num_recorded > answer.drawn.length ? ` The ${answer.drawn.length} slowest of ${fixed(answer.num_recorded)} devices are drawn.` : "";
  const latency = answer.compute_s.map((value, i) => (value ?? 0) + (answer.uplink_s[i] ?? 0));
  say(byId("devices-note"), `Global round ${answer.global_round}, edge round ${answer.edge_round}${sampled}: ${gone ? `excluded: ${gone}` : "all devices in time"}; `
    + `the slowest ${rows.get(name)?.is_deployed ? "was planned to take" : "takes"} ${fixed(Math.max(...latency) * 1e3, 2)} ms.${many}`);
  byId("devices-deployed").hidden = !rows.get(name)?.is_deployed;
  byId("devices-deployed").querySelector("a").href = `/deployment?${new URLSearchParams({ of: name })}`;
  byId("devices").hidden = byId("devices-all").hidden = false;
  drawDevices(byId("devices"), answer);
  if (byId("devices-all").open) replaceTable(byId("devices-table"), devicesTable(answer, { measures, deviceColumns: start.device_columns }));
}

function showCoverage(entries) {
  const known = entries.filter((entry) => entry[2]?.length);
  byId("coverage").hidden = byId("coverage-all").hidden = known.length === 0;
  if (known.length === 0) {
    say(byId("coverage-note"), "Its coverage is not in the records, or in lines too long to be looked into.");
    return;
  }
  const worst = Math.max(...known[known.length - 1][2].map((row) => row[2] ?? 0));
  const edges = known[known.length - 1][2].length;
  say(byId("coverage-note"), `A weight that no device of an edge kept stays as it was. In the last edge round: up to ${fixed(worst)} on one edge.${edges === 32 ? " The first 32 edges are shown." : ""}`);
  drawCoverage(byId("coverage"), known, Number(byId("coverage-what").value));
  if (byId("coverage-all").open) replaceTable(byId("coverage-table"), coverageTable(known));
}

function step(by) {
  const entries = entriesOf(looked());
  const current = state.round ?? entries[entries.length - 1].slice(0, 2);
  const later = entries.findIndex((entry) => entry[0] > current[0] || (entry[0] === current[0] && entry[1] >= current[1]));
  const at = later < 0 ? entries.length : later;
  const exact = entries[at]?.[0] === current[0] && entries[at]?.[1] === current[1];
  const target = entries[Math.min(entries.length - 1, Math.max(0, by > 0 && !exact ? at : at + by))];
  setRound(target.slice(0, 2));
}

function setRound(round) {
  state.round = round;
  rememberInAddress();
  showOneRun();
}

// Differences -------------------------------------------------------------------------------------------------------

async function showDifferences(given = null) {
  const names = state.chosen;
  byId("differences-panel").hidden = names.length < 2;
  if (names.length < 2) {
    differing = { names, keys: {}, unreadable: [] };
    return;
  }
  let found = given;
  try {
    found ??= await getJson(`/api/runs/differences?${new URLSearchParams(names.map((name) => ["run", name]))}`);
  } catch (error) {
    byId("differences").replaceChildren(element("p", { class: "note" }, error.message));
    return;
  }
  if (names !== state.chosen) return;
  differing = found;
  showList();
  showCurves();
  const header = ["key", ...found.names];
  const lines = Object.entries(found.keys).map(([key, values]) => [key, ...values]);
  const content = [lines.length ? dataTable(header, lines, { words: header.map((_, i) => i), caption: "Only the keys that differ" })
    : element("p", { class: "note" }, "The scenarios are the same.")];
  if (found.unreadable.length) content.push(element("p", { class: "note" }, `The scenario cannot be read: ${found.unreadable.join(", ")}.`));
  byId("differences").replaceChildren(...content);
}

// Live --------------------------------------------------------------------------------------------------------------

let source = null;

function listen() {
  source?.close();
  source = new EventSource(`/api/runs/events?${new URLSearchParams(state.chosen.map((name) => ["run", name]))}`);
  source.addEventListener("open", () => say(byId("connection"), ""));
  source.addEventListener("error", () => say(byId("connection"), "The server does not answer; trying again."));
  source.addEventListener("curve", (event) => takeCurve(JSON.parse(event.data)));
  source.addEventListener("runs", (event) => takeRuns(JSON.parse(event.data)));
  source.addEventListener("work", (event) => takeWork(JSON.parse(event.data)));
}

function takeCurve(news) {
  if (!state.chosen.includes(news.name)) return;
  if (!news.gone) {
    const old = curves.get(news.name);
    news.rows = [...(old?.rows ?? []).slice(0, news.row_from), ...news.rows];
    news.edges = [...(old?.edges ?? []).slice(0, news.edge_from), ...news.edges];
  }
  curves.set(news.name, news);
  showSoon();
}

function takeRuns(news) {
  news.gone.forEach((name) => rows.delete(name));
  news.changed.forEach((row) => rows.set(row.name, row));
  const { changed, gone, ...about } = news;
  state.about = about;
  if (state.chosen.length === 0 && state.byDefault && changed.length) choose(changed[0].name, true);
  else showSoon();
}

function takeWork(work) {
  const started = work.name !== null && work.name !== state.work.name && work.state === "running";
  state.work = work;
  if (started && !state.chosen.includes(work.name) && state.chosen.length < start.max_compared) choose(work.name, true);
  showWork();
  showList();
}

let waiting = false;

/** Many events in a moment are one redraw. */
function showSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; showAll(); });
}

function showAll() {
  showList();
  showCurves();
  showOneRun();
}

// The run at work ---------------------------------------------------------------------------------------------------

function showWork() {
  const box = byId("work");
  const { state: how, name, exit_status: status, said } = state.work;
  const words = {
    running: `${name} is at work; it was started here.`,
    stopping: `${name} finishes what it must and stops; it can be resumed.`,
    ended: status === 0 ? `${name} is finished.` : status === 130 ? `${name} is stopped and can be resumed.` : `${name} failed. Its last words:`,
  }[how];
  box.hidden = !words || !mayRun;
  box.className = `box ${how === "ended" ? (status === 0 ? "good" : status === 130 ? "open" : "bad") : "fair"}`;
  if (!words) return;
  const stopButton = element("button", { type: "button", class: "quiet" }, how === "stopping" ? "Stop at once" : "Stop");
  stopButton.addEventListener("click", stop);
  box.replaceChildren(words, ...(how === "ended" ? [] : [stopButton]), ...(said ? [element("pre", {}, said)] : []));
}

async function ask(path, body) {
  try {
    takeWork(await sendJson(path, body));
  } catch (error) {
    tell(error.message);
  }
}

const stop = () => ask("/api/work/stop", {});
const resume = (name) => ask("/api/work/resume", { run: name });

function tell(sentence) {
  byId("notice").textContent = sentence;
  byId("notice").hidden = false;
}

// Wiring ------------------------------------------------------------------------------------------------------------

function fill(select, names, value) {
  select.replaceChildren(...names.map((name) => element("option", { value: name }, measures[name].axis_label)));
  select.value = value;
}

fill(byId("measure"), start.drawn, state.measure);
fill(byId("against"), start.axes, state.against);
for (const key of ["measure", "against"]) {
  byId(key).addEventListener("change", () => { state[key] = byId(key).value; rememberInAddress(); showCurves(); });
}
byId("target").value = state.target ?? "";
byId("target").addEventListener("change", () => { state.target = shareIn(byId("target").value); rememberInAddress(); showCurves(); });
byId("filter").addEventListener("input", showList);
byId("all").addEventListener("click", () => {
  Object.assign(state, { match: byId("filter").value.trim(), chosen: [], byDefault: false, group: state.group === "each" ? "seeds" : state.group });
  chosenChanged();
});
for (const key of ["group", "colour"]) {
  byId(key).addEventListener("change", () => { state[key] = byId(key).value; rememberInAddress(); showList(); showCurves(); });
}
for (const key of ["x", "y"]) {
  byId(`log-${key}`).checked = state.log[key];
  byId(`log-${key}`).addEventListener("change", () => { state.log[key] = byId(`log-${key}`).checked; rememberInAddress(); showCurves(); });
}
byId("clear").addEventListener("click", () => { state.chosen = []; if (state.match !== null) Object.assign(state, { match: null, group: "each" }); state.byDefault = false; chosenChanged(); });
byId("look").addEventListener("change", () => { state.look = byId("look").value; setRound(null); });
for (const id of ["global-round", "edge-round"]) {
  byId(id).addEventListener("change", () => {
    const round = [byId("global-round"), byId("edge-round")].map((input) => Math.max(1, Math.floor(Number(input.value) || 1)));
    setRound(round);
  });
}
byId("previous").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
byId("newest").addEventListener("click", () => setRound(null));
byId("coverage-what").addEventListener("change", showOneRun);
byId("points").addEventListener("toggle", () => byId("points").open && showPoints());
byId("devices-all").addEventListener("toggle", showDevices);
byId("coverage-all").addEventListener("toggle", showOneRun);
onThemeChange(() => { showAll(); showDevices(); });
narrow.addEventListener("change", showCurves);
setInterval(showList, 15_000);

const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
byId("none-command").textContent = `airprune run smoke --out ${quoted(`${site.runs_dir}/first`)}`;
if (start.unknown.length) tell(`Not a run here: ${start.unknown.join(", ")}.`);
showAll();
showWork();
showDifferences(start.differences);
listen();
connectStart({ mayRun, take: takeWork, quoted });
