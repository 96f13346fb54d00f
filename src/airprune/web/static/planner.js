// The planner page: settings and places in, one request, one picture.

import {
  byId, dataTable, element, fixed, getJson, hasToken, initialData, loadPlotly, onGround, onThemeChange, say, sendJson, site,
} from "./common.js";
import { drawMap, drawShares, drawTimes, MARK_WORDS } from "./planner-charts.js";
import { connectMap } from "./planner-map.js";
import {
  CHOICES, FIELDS, MAY_BE_OPEN, NUMBERS, roundedMove, showSettings, State, stretch, SWITCHES, TIME,
} from "./planner-state.js";

const MAX_TABLE_ROWS = 200;
const MAX_FLEET_BYTES = 64 * 2 ** 20;
const BADGES = { good: "fits", fair: "late", chance: "by chance", bad: "no plan" };
const TABLES_AFTER_MS = 60;
const NINES_AFTER_MS = 350;
const ON_FOOT_M_PER_S = 1.5;
const STALE_MS = 400; // a request this old is given up for a newer one

const initial = initialData();
const schemes = new Map(initial.schemes.map((scheme) => [scheme.name, scheme]));
const state = new State(initial.presets);
let answer = initial.answer;
let selected = null;

// From state to picture ---------------------------------------------------------------------------------------------

let wanted = null; // the query to ask next
let running = null; // the request under way
let tablesTimer = null; // tables follow once the sliders rest
let answered = ""; // the query that `answer` answers

/** Asks for the plan of the present state; of many calls in a row only the last one counts. */
function replan() {
  wanted = state.query();
  writeAddress();
  if (!running) void pump();
  else if (performance.now() - running.since > STALE_MS) running.controller.abort();
}

async function pump() {
  while (wanted !== null) {
    const query = wanted;
    wanted = null;
    running = { since: performance.now(), controller: new AbortController() };
    try {
      answer = await getJson(`/api/plan?${query}`, { signal: running.controller.signal });
      answered = query;
      showError(null);
      await show();
    } catch (error) {
      if (error.name !== "AbortError") showError(error.message);
    }
    running = null;
  }
}

/** Words first; then, once plotly is there, the charts in view, and the others when they come into view or all is quiet. */
async function show() {
  showWords();
  showDevice();
  if (!window.Plotly) void showCompared();
  const Plotly = await loadPlotly();
  for (const id of Object.keys(CHARTS)) stale.add(id);
  await drawInView(Plotly);
  document.body.dataset.drawn = answered; // what the picture shows, for those who wait for it
  waitForNines();
  clearTimeout(tablesTimer);
  tablesTimer = setTimeout(() => { void showCompared(); showTables(); void drawAll(); }, TABLES_AFTER_MS);
}

/** Off-screen charts follow once the sliders rest, so that not even a printer finds an old one. */
async function drawAll() {
  const Plotly = await loadPlotly();
  for (const id of [...stale]) await draw(Plotly, id);
}

const CHARTS = {
  map: (Plotly) => drawMap(Plotly, answer, selected),
  time: (Plotly) => drawTimes(Plotly, answer, schemes.get(answer.settings.scheme).colour),
  share: (Plotly) => drawShares(Plotly, answer, schemes.get(answer.settings.scheme).colour),
};
const stale = new Set();
const inView = new Set(Object.keys(CHARTS));

async function drawInView(Plotly) {
  for (const id of [...stale].filter((name) => inView.has(name))) await draw(Plotly, id);
}

async function draw(Plotly, id) {
  if (!stale.delete(id)) return;
  await CHARTS[id](Plotly);
  byId(id).dataset.drawn = answered;
}

function watchCharts() {
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inView.add(target.id);
      else inView.delete(target.id);
    }
    if (stale.size) void loadPlotly().then(drawInView);
  }, { rootMargin: "80px" });
  for (const id of Object.keys(CHARTS)) observer.observe(byId(id));
}

function showWords() {
  const { summary, words } = answer;
  say(byId("badge"), BADGES[words.kind]);
  byId("badge").className = `badge ${words.kind}`;
  say(byId("verdict"), words.verdict);
  const planned = summary.num_planned < answer.num_devices ? ` of ${fixed(summary.num_planned)} planned` : "";
  tile("mean-pruning", summary.mean_pruning === null ? "–" : `${fixed(100 * summary.mean_pruning, 1)} %`, planned);
  tile("sum-pruning", fixed(summary.sum_pruning, 2), planned);
  tile("mean-upload", `${fixed(summary.mean_weights)}`, summary.mean_weights === null ? ""
    : ` of ${fixed(summary.mean_whole_weights)} weights, ${fixed(summary.mean_bits / 1e6, 2)} Mbit`);
  tile("round-ms", summary.round_ms === null ? "–" : `${fixed(summary.round_ms, 2)} ms`,
    summary.num_late ? ` ${fixed(summary.num_late)} late` : "");
  tile("counts", fixed(answer.num_devices), ` on ${fixed(answer.num_edges)}`);
  byId("prices").replaceChildren(...words.prices.map((sentence) => element("p", {}, sentence)),
    ...(words.prices.length ? [element("p", { class: "hint" }, "Both found exactly, by planning once more.")] : []));
  byId("overhead").replaceChildren(...words.overhead.map((sentence) => element("p", {}, sentence)));
  showRadio();
  say(byId("time-words"), words.times);
  byId("time-words").hidden = !words.times;
  byId("fleet-result").hidden = !answer.is_table;
  say(byId("fleet-badge"), BADGES[words.kind]);
  byId("fleet-badge").className = `badge ${words.kind}`;
  say(byId("fleet-verdict"), words.verdict);
  showTraining();
  byId("failures").replaceChildren(...words.failures.map((sentence) => element("li", {}, sentence)));
  byId("failures").hidden = !words.failures.length;
  const deadline = answer.suggested_deadline_ms;
  byId("use-deadline").hidden = deadline === null;
  if (deadline !== null) say(byId("use-deadline"), `Set the deadline to ${deadline} ms`);
  byId("use-optimal").hidden = !summary.num_outside;
  const thinned = answer.num_drawn < answer.num_devices;
  byId("thinned").hidden = !thinned;
  say(byId("thinned"), thinned ? `The charts beside the map show ${fixed(answer.num_drawn)} of ${fixed(answer.num_devices)} devices, evenly `
    + "chosen, with those that were moved or are late or block an edge; all statistics are of all devices." : "");
  showDensity();
  const scheme = schemes.get(answer.settings.scheme);
  byId("swatch").style.background = onGround(scheme.colour);
  say(byId("scheme-hint"), scheme.summary);
  for (const [id, path] of [["download-plan", "/api/plan.csv"], ["download-fleet", "/api/fleet.csv"]]) {
    byId(id).href = `${path}?${state.query()}`;
  }
  byId("fleet-drop").hidden = !answer.is_table;
  byId("put-all-back").hidden = state.moves.size < 2;
  say(byId("put-all-back"), `Put all ${state.moves.size} back`);
}

/** What a radio adds to the picture: interference, probabilities, colours of the ground, and the same plan as a command. */
function showRadio() {
  const { devices, edges, settings, command } = answer;
  const rises = edges.rise_db.filter((value) => value !== null);
  byId("rise-tile").hidden = !rises.length;
  if (rises.length) tile("rise", `+${fixed(Math.max(...rises), 1)} dB`, ` worst edge, mean ${fixed(rises.reduce((a, b) => a + b, 0) / rises.length, 1)} dB`);
  const chances = (devices.on_time ?? []).filter((value) => value !== null);
  byId("on-time-tile").hidden = !chances.length;
  if (chances.length) tile("least-on-time", `${fixed(100 * Math.min(...chances), 1)} %`, settings.on_time === "none" ? " no promise" : ` ${fixed(100 * settings.on_time, 1)} % promised`);
  byId("ground-words").hidden = settings.ground === "none";
  say(byId("ground-words"), answer.ground === null
    ? "The ground stays plain: it is shown for networks that are placed here, with up to a few hundred edges."
    : `The ground shows ${settings.ground === "sinr" ? "the SINR" : "the rate"} of a device alone on the whole bandwidth with the median path loss and the mean of fading`
      + `${rises.length ? ", under the interference of this plan" : ""}; lines part the cells of the edges.`);
  say(byId("preset-hint"), initial.preset_words[settings.preset]);
  byId("command").hidden = !command;
  if (command) say(byId("command-line"), command);
  say(byId("command-words"), state.moves.size ? "Without the devices that were moved by hand: a scenario has no word for them." : "Gives the same numbers, and with --json all of them.");
  const movesAlone = settings.mobility !== "none";
  for (const id of ["east", "north"]) byId(id).disabled = movesAlone;
}

let nines = { timer: null, controller: new AbortController() }; // takes longer than a plan, so it waits for longer

/** Shows the price of one more nine where plans do not know the fading exactly, once all has been at rest. */
function waitForNines() {
  clearTimeout(nines.timer);
  nines.controller.abort();
  byId("nines").hidden = !answer.devices.on_time;
  if (!answer.devices.on_time) return;
  if (byId("promises").dataset.drawn !== answered) byId("promises").replaceChildren(element("p", { class: "note" }, "Planning …"));
  nines = { timer: setTimeout(() => void showNines(), NINES_AFTER_MS), controller: new AbortController() };
}

async function showNines() {
  const asked = answered;
  const lines = await getJson(`/api/promises?${asked}`, { signal: nines.controller.signal }).catch(() => null);
  if (lines === null || asked !== answered) return;
  byId("promises").replaceChildren(dataTable(["on time", "served", "mean ρ", "largest ρ", "smallest ms", "ms for the same ρ"], lines.map((line) => [
    line.on_time === null ? "no promise" : `${+(100 * line.on_time).toFixed(3)} %`, fixed(line.served), fixed(line.mean_ratio, 3), fixed(line.max_ratio, 3),
    line.smallest_deadline_s === null ? "–" : fixed(1e3 * line.smallest_deadline_s, 2), line.same_pruning_s === null ? "–" : fixed(1e3 * line.same_pruning_s, 2),
  ]), { words: [0] }));
  byId("promises").dataset.drawn = asked;
}

/** What the map is where devices are too many to be drawn one by one. */
function showDensity() {
  const { density, devices, summary } = answer;
  byId("density-words").hidden = density === null;
  byId("mark-words").hidden = density !== null;
  if (density === null) return;
  const side = `${fixed(density.cell_m, density.cell_m < 1 ? 3 : 0)} m`;
  const troubled = summary.num_late + summary.num_blocking + summary.num_outside;
  const marked = devices.mark.filter((mark) => ["late", "blocks", "outside"].includes(mark)).length;
  const trouble = troubled ? ` and ${marked < troubled ? `${fixed(marked)} of ` : "all "}${fixed(troubled)} that are late, block their edge or are out of bounds` : "";
  say(byId("density-words"), `The map is a density: colour shows how many of all ${fixed(answer.num_devices)} devices stand in each `
    + `cell of ${side} × ${side}, on a logarithmic scale; bare cells have none. Marks are the selected device${trouble ? "," : " and"} those that were moved${trouble}.`);
}

const mayTrain = site.allow_run && hasToken();

function showTraining() {
  const { preset, has_table: hasTable, overrides } = answer.training;
  const words = Object.entries(overrides).map(([key, value]) => `${key}=${value}`).join(" ");
  say(byId("train-command"), `airprune run ${preset} ${hasTable ? "network.table=fleet.csv " : ""}${words}`.trim());
  say(byId("train-words"), !hasTable ? "Trains this network with its radio; devices moved by hand stand where they stood."
    : mayTrain
    ? "Makes these devices the network of a run: their table is written below the runs folder, and the page Runs opens with the settings filled in. On a command line, with the devices’ CSV from above:"
    : "With the devices’ CSV from above as fleet.csv (a server started with --allow-run does it from this page):");
  byId("train-here").hidden = !mayTrain;
}

async function setUpRun() {
  byId("train-error").hidden = true;
  try {
    const { preset, has_table: hasTable } = answer.training;
    const { overrides } = hasTable ? await sendJson(`/api/planner/table?${state.query()}`, {}) : answer.training;
    const pairs = [["preset", preset], ...Object.entries(overrides).map(([key, value]) => ["set", `${key}=${value}`])];
    location.href = `/runs?${new URLSearchParams(pairs)}#start`;
  } catch (error) {
    byId("train-error").hidden = false;
    say(byId("train-error"), error.message);
  }
}

function tile(id, value, more = "") {
  byId(id).replaceChildren(value, ...(more ? [element("small", {}, more)] : []));
}

/** Requests the table of all schemes once the sliders rest: it takes as long as the plan itself. */
async function showCompared() {
  const asked = answered;
  const compared = await getJson(`/api/compared?${asked}`).catch(() => null); // the plan's own request tells what is wrong
  if (compared === null || asked !== answered) return;
  if (!compared.length) {
    byId("compared").replaceChildren(element("p", { class: "note" }, "Shown for up to 20,000 devices."));
    return;
  }
  const rows = compared.map((row) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = onGround(schemes.get(row.scheme).colour);
    const choose = element("button", { type: "button", title: schemes.get(row.scheme).summary, "data-scheme": row.scheme }, row.scheme);
    if (row.refused) return [element("span", {}, swatch, " ", choose), element("span", { class: "badge open", title: row.refused }, "refused"), "–", "–"];
    const [kind, word] = row.num_failed ? ["bad", "no plan"] : row.num_late ? ["fair", `${fixed(row.num_late)} late`] : ["good", "fits"];
    return [element("span", {}, swatch, " ", choose), element("span", { class: `badge ${kind}` }, word),
      row.mean_pruning === null ? "–" : fixed(100 * row.mean_pruning, 1), fixed(row.round_ms, row.round_ms >= 1000 ? 0 : 2)];
  });
  const focused = document.activeElement?.dataset?.scheme;
  byId("compared").replaceChildren(dataTable(["scheme", "deadline", "pruned %", "slowest ms"], rows, { words: [0, 1] }));
  byId("compared").querySelectorAll("tbody tr").forEach((line, i) => {
    if (compared[i].scheme === answer.settings.scheme) line.setAttribute("aria-current", "true");
    const button = line.querySelector("button");
    button.addEventListener("click", () => set("scheme", button.dataset.scheme));
    if (button.dataset.scheme === focused) button.focus();
  });
}

function showError(sentence) {
  byId("error").hidden = sentence === null;
  say(byId("error"), sentence ?? "");
  byId("undo-row").hidden = sentence === null;
  const field = sentence?.match(/^(?:planner|(?:Scenario\.)?(?:network|radio|plan|association))\.(\w+)/)?.[1];
  for (const name of [...NUMBERS, ...FIELDS, ...CHOICES, ...SWITCHES, TIME]) {
    if (name === field) byId(name).setAttribute("aria-invalid", "true");
    else byId(name).removeAttribute("aria-invalid");
  }
}

function showTables() {
  if (!byId("numbers").open) return;
  const { devices, edges } = answer;
  const share = (value, decimals) => (value === null ? "–" : `${fixed(100 * value, decimals)} %`);
  const deviceRows = devices.index.slice(0, MAX_TABLE_ROWS).map((_, i) => [devices.name[i], edges.name[devices.edge[i]] ?? "",
    MARK_WORDS[devices.mark[i]], share(devices.ratio[i], 2), share(devices.share[i], 2), fixed(devices.compute_ms[i], 3),
    fixed(devices.uplink_ms[i], 3), fixed(devices.latency_ms[i], 3), fixed(devices.snr_db[i], 2), ...(devices.sinr_db ? [fixed(devices.sinr_db[i], 2)] : []),
    ...(devices.on_time ? [share(devices.on_time[i], 2)] : []), fixed(devices.cpu_ghz[i], 2)]);
  const edgeRows = edges.name.slice(0, MAX_TABLE_ROWS).map((name, k) => [name, edges.status[k], fixed(edges.num_devices[k]),
    share(edges.mean_pruning[k], 2), fixed(edges.round_ms[k], 3), fixed(edges.min_deadline_ms[k], 3), fixed(edges.shadow_price[k], 4)]);
  const more = (shown, all, what) => (shown < all ? `The first ${fixed(shown)} of ${fixed(all)} ${what}; the CSV has all.` : `All ${fixed(all)} ${what}.`);
  byId("tables").replaceChildren(
    dataTable(["device", "edge", "state", "pruned", "bandwidth share", "compute ms", "upload ms", "total ms", "SNR dB",
      ...(answer.devices.sinr_db ? ["SINR dB"] : []), ...(answer.devices.on_time ? ["on time"] : []), "GHz"],
      deviceRows, { words: [0, 1, 2], caption: more(deviceRows.length, answer.num_devices, "devices") }),
    dataTable(["edge", "status", "devices", "mean pruning", "slowest ms", "smallest workable ms", "shadow price"], edgeRows,
      { words: [0, 1], caption: `${more(edgeRows.length, answer.num_edges, "edges")} Shadow price: drop of the edge’s Σρ per whole bandwidth added.` }),
  );
}

// The selected device -----------------------------------------------------------------------------------------------

const place = (index) => answer.devices.index.indexOf(index);

function showDevice() {
  const { devices, edges } = answer;
  if (place(selected) < 0) selected = devices.index[0];
  const choice = byId("device");
  const names = devices.name.join("\n");
  if (choice.dataset.names !== names) {
    choice.dataset.names = names;
    choice.replaceChildren(...devices.index.map((index, i) => element("option", { value: index }, devices.name[i])));
  }
  choice.value = String(selected);
  const i = place(selected);
  for (const [id, value] of [["east", devices.x_m[i]], ["north", devices.y_m[i]]]) {
    if (document.activeElement !== byId(id)) byId(id).value = String(Math.round(10 * value) / 10);
  }
  byId("put-back").disabled = !state.moves.has(moveKey(selected));
  const edge = devices.edge[i];
  const away = Math.hypot(devices.x_m[i] - edges.x_m[edge], devices.y_m[i] - edges.y_m[edge]);
  const plan = devices.ratio[i] === null ? "no plan" : `prunes ${fixed(100 * devices.ratio[i], 1)} %, has ${fixed(100 * devices.share[i], 1)} % of `
    + `the band; ${fixed(devices.compute_ms[i], 2)} ms compute + ${fixed(devices.uplink_ms[i], 2)} ms upload`;
  const beside = devices.sinr_db ? `, SINR ${fixed(devices.sinr_db[i], 1)} dB` : "";
  const chance = devices.on_time?.[i] == null ? "" : `; on time with ${fixed(100 * devices.on_time[i], 1)} %`;
  const waits = ["blocks", "waits"].includes(devices.mark[i]) ? ` (drawn at its edge’s smallest workable deadline, ${fixed(edges.min_deadline_ms[edge], 2)} ms)` : "";
  say(byId("device-words"), `Device ${devices.name[i]} on edge ${edges.name[edge] ?? edge}, ${fixed(away)} m away, SNR `
    + `${fixed(devices.snr_db[i], 1)} dB${beside}, ${fixed(devices.cpu_ghz[i], 2)} GHz: ${plan}; ${MARK_WORDS[devices.mark[i]]}${waits}${chance}.`);
}

/** How a device is called in an address: edge.device, or the row of a table. */
function moveKey(index) {
  if (answer.is_table) return String(index);
  const size = answer.settings.devices_per_edge;
  return `${Math.floor(index / size)}.${index % size}`;
}

function select(index) {
  selected = index;
  showDevice();
  void loadPlotly().then((Plotly) => drawMap(Plotly, answer, selected));
}

/** Devices are moved from their own edge, whichever serves them. */
const homeOf = (index) => (answer.is_table ? answer.devices.edge[place(index)] : Math.floor(index / answer.settings.devices_per_edge));

function move(index, east, north) {
  if (state.settings.mobility !== "none") return; // it moves by itself
  const i = place(index);
  const edge = homeOf(index);
  const [origin_x, origin_y] = [answer.edges.x_m[edge] ?? 0, answer.edges.y_m[edge] ?? 0];
  const [dx, dy] = roundedMove(east - origin_x, north - origin_y);
  state.moves.set(moveKey(index), [dx, dy]);
  [answer.devices.x_m[i], answer.devices.y_m[i]] = [origin_x + dx, origin_y + dy];
  replan();
}

// Controls ----------------------------------------------------------------------------------------------------------

function set(name, value) {
  state.settings[name] = value;
  if (name === "inner_m") state.settings.outer_m = Math.max(value, state.settings.outer_m);
  if (name === "outer_m") state.settings.inner_m = Math.min(value, state.settings.inner_m);
  if (name === "reuse" && value !== "none" && state.settings.ground === "none") state.settings.ground = "sinr";
  if (name === "mobility" && value !== "none") {
    if (state.settings.speed_m_per_s === 0) state.settings.speed_m_per_s = ON_FOOT_M_PER_S;
    state.moves.clear();
  }
  showSettings(state.settings, Boolean(state.settings.fleet));
  replan();
}

function startFrom(preset) {
  state.startFrom(preset);
  showSchemes();
  showSettings(state.settings, Boolean(state.settings.fleet));
  replan();
}

/** The schemes that plan the preset's networks. */
function showSchemes() {
  const offered = initial.schemes.filter(({ presets }) => presets.includes(state.settings.preset));
  byId("scheme").replaceChildren(...offered.map(({ name }) => element("option", { value: name }, name)));
}

function connectControls() {
  showSchemes();
  byId("scheme").addEventListener("change", (event) => set("scheme", event.target.value));
  for (const name of [...NUMBERS, TIME]) {
    const [field, slider] = [byId(name), byId(`${name}-slider`)];
    slider.addEventListener("input", () => set(name, Number(slider.value)));
    field.addEventListener("input", () => {
      if (field.value === "" || field.validity.badInput) {
        field.setAttribute("aria-invalid", "true");
        return;
      }
      stretch(slider, Number(field.value));
      set(name, Number(field.value));
    });
  }
  byId("preset").replaceChildren(...Object.keys(initial.presets).map((name) => element("option", { value: name }, name)));
  byId("preset").addEventListener("change", (event) => startFrom(event.target.value));
  byId("path_loss").replaceChildren(...initial.path_losses.map((name) => element("option", { value: name }, name)));
  for (const name of CHOICES) {
    byId(name).addEventListener("change", (event) => {
      const { value } = event.target;
      set(name, ["reuse", "on_time"].includes(name) && value !== "none" ? Number(value) : value);
    });
  }
  for (const name of SWITCHES) byId(name).addEventListener("change", (event) => set(name, event.target.checked));
  for (const name of FIELDS) {
    byId(name).addEventListener("input", (event) => {
      const field = event.target;
      if (field.validity.badInput || (field.value === "" && !MAY_BE_OPEN.includes(name))) field.setAttribute("aria-invalid", "true");
      else set(name, field.value === "" ? "none" : Number(field.value));
    });
  }
  byId("undo").addEventListener("click", () => {
    state.accept(answer.settings);
    showError(null);
    showSettings(state.settings, answer.is_table);
    writeAddress();
    byId("title").scrollIntoView({ block: "nearest" });
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").addEventListener("reset", (event) => {
    event.preventDefault();
    startFrom(state.settings.preset);
  });
  byId("use-deadline").addEventListener("click", () => {
    set("deadline_ms", answer.suggested_deadline_ms);
    byId("deadline_ms").focus();
  });
  byId("use-optimal").addEventListener("click", () => {
    set("scheme", "optimal");
    byId("scheme").focus();
  });
  byId("device").addEventListener("change", (event) => select(Number(event.target.value)));
  for (const id of ["east", "north"]) {
    byId(id).addEventListener("change", () => {
      if (byId("east").value !== "" && byId("north").value !== "") move(selected, Number(byId("east").value), Number(byId("north").value));
    });
  }
  byId("put-back").addEventListener("click", () => {
    state.moves.delete(moveKey(selected));
    replan();
  });
  byId("put-all-back").addEventListener("click", () => {
    state.moves.clear();
    replan();
  });
  byId("numbers").addEventListener("toggle", showTables);
  byId("train-start").addEventListener("click", () => void setUpRun());
  addEventListener("beforeprint", () => void drawAll());
  byId("copy-link").addEventListener("click", copyLink);
}

// Own fleets --------------------------------------------------------------------------------------------------------

async function useTable(content, name) {
  byId("fleet-error").hidden = true;
  say(byId("fleet-words"), "Reading …");
  try {
    if (content.size > MAX_FLEET_BYTES) throw new Error("The file must have at most 64 MiB; use `airprune plan` for larger ones.");
    const read = await sendJson(`/api/fleet?name=${encodeURIComponent(name)}`, content, { type: "text/csv" });
    await state.rememberTable(content.size > 2 ** 22 ? "".padEnd(2 ** 22) : await content.text());
    state.settings.fleet = read.fleet;
    state.moves.clear();
    selected = null;
    showSettings(state.settings, true);
    tellTable(read, name);
    replan();
  } catch (error) {
    say(byId("fleet-words"), "");
    byId("fleet-error").hidden = false;
    say(byId("fleet-error"), error.message);
  }
}

function tellTable({ num_devices: devices, num_edges: edges, ignored }, name) {
  const skipped = ignored.length ? ` Ignored columns: ${ignored.join(", ")}.` : "";
  const link = state.tableInLink ? "" : " It is too long for a link: links to it work while this server runs.";
  say(byId("fleet-words"), `Planning ${name}: ${fixed(devices)} devices on ${fixed(edges)} edges. They stand where the path `
    + `loss law would give their SNR; moving one changes its SNR.${skipped}${link}`);
}

function connectFleet() {
  const useFile = () => {
    const [file] = byId("fleet-file").files;
    if (file) void useTable(file, file.name);
    return Boolean(file);
  };
  byId("fleet-file").addEventListener("change", useFile);
  byId("fleet-use").addEventListener("click", () => {
    const pasted = byId("fleet-text").value;
    if (pasted.trim() || !useFile()) void useTable(new Blob([pasted]), "the pasted table");
  });
  byId("fleet-drop").addEventListener("click", () => {
    delete state.settings.fleet;
    state.tableInLink = "";
    state.moves.clear();
    byId("fleet-file").value = "";
    selected = null;
    say(byId("fleet-words"), "");
    showSettings(state.settings, false);
    replan();
  });
}

// The address -------------------------------------------------------------------------------------------------------

let addressTimer = null;

// Browsers allow only so many changes of the address per second.
function writeAddress() {
  addressTimer ??= setTimeout(() => {
    addressTimer = null;
    history.replaceState(null, "", state.link());
  }, 250);
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(state.link());
    say(byId("copied"), "Copied. It works while this server runs.");
  } catch {
    history.replaceState(null, "", state.link());
    say(byId("copied"), "The address bar has it.");
  }
}

/** Sends the table of a link to a server that may not know it; true if the plan has to be asked for again. */
async function sendTableOfAddress() {
  try {
    const text = await state.tableOfAddress();
    if (text === null) return false;
    tellTable(await sendJson("/api/fleet", new Blob([text]), { type: "text/csv" }), "the table of this link");
    return Boolean(initial.error);
  } catch (error) {
    showError(`The table of this link cannot be used: ${error.message}`);
    return false;
  }
}

async function start() {
  connectControls();
  connectFleet();
  connectMap({ answer: () => answer, selected: () => selected, select, move, settled: show });
  state.accept(answer.settings);
  byId("rungs").open = matchMedia("(min-width: 761px)").matches; // on a narrow screen they would part the words from the map
  showSchemes();
  answered = state.query();
  showSettings(state.settings, answer.is_table);
  if (initial.error) showError(`${initial.error.replace(/[^.]$/, "$&.")} Shown are the paper’s values.`);
  showWords();
  if (await sendTableOfAddress()) {
    state.acceptQuery(location.search);
    showSettings(state.settings, true);
    replan();
  } else {
    await show();
  }
  watchCharts();
}

onThemeChange(() => void show());
void start();
