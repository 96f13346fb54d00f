// The work page: boards and sliders in, one request, bars out.

import { byId, dataTable, element, fixed, getJson, initialData, say } from "./common.js";

const NUMBERS = ["steps", "first_trained", "deadline_ms", "bandwidth_mhz", "samples", "cpu_ghz"];
const BADGES = { good: "fits", bad: "no plan" };

const initial = initialData();
let answer = initial.answer;
let settings = { ...answer.settings };

// From settings to bars ----------------------------------------------------------------------------------------------

let wanted = false;
let running = false;

const query = () => new URLSearchParams(
  Object.entries(settings).filter(([name, value]) => value !== initial.defaults[name]).map(([name, value]) => [name, String(value)]),
).toString();

/** Asks for the present state; of many calls in a row only the last one counts. */
async function replan() {
  history.replaceState(null, "", `${location.pathname}${query() ? `?${query()}` : ""}`);
  wanted = true;
  if (running) return;
  running = true;
  while (wanted) {
    wanted = false;
    try {
      answer = await getJson(`/api/planned-work?${query()}`);
      showError(null);
      show();
    } catch (error) {
      showError(error.message);
    }
  }
  running = false;
}

function showError(sentence) {
  byId("error").hidden = sentence === null;
  byId("error").textContent = sentence ?? "";
}

function show() {
  const { words } = answer;
  byId("badge").className = `badge ${words.kind}`;
  byId("badge").textContent = BADGES[words.kind];
  say(byId("verdict"), words.verdict);
  say(byId("tried-words"), `Tried: ${words.tried}`);
  byId("prices").replaceChildren(...words.prices.map((sentence) => element("p", { class: "note" }, sentence)));
  byId("use-best").textContent = `Best deadline: ${fixed(answer.best_deadline_ms, 1)} ms`;
  showBars();
  showTable();
  document.body.dataset.drawn = query();
}

function showBars() {
  const { devices, planned, tried, settings: { deadline_ms: deadline } } = answer;
  const ends = [...(planned ?? []), ...tried].map((one) => one.total_ms);
  // A bar that is far too long is cut at three deadlines, so that the others can be seen.
  const longest = Math.max(deadline, Math.min(Math.max(...ends), 3 * deadline)) * 1.05;
  byId("bars").replaceChildren(...devices.map((device, i) => {
    const plan = planned?.[i];
    const text = plan ? `${plan.trains}, ${fixed(plan.steps)} steps, ${fixed(plan.bits, 1)} bits, ${fixed(100 * plan.share, 1)} % of the bandwidth` : "no plan";
    const most = tried[i].most_steps;
    return element(
      "li", {},
      element("p", { class: "name" }, `${i + 1}. ${device.label}${device.is_assumed ? " *" : ""}`, element("span", {}, text)),
      plan ? track(plan, longest, deadline, "") : null,
      track(tried[i], longest, deadline, "tried"),
      element("p", { class: "hint" }, `tried: ${fixed(tried[i].total_ms, 1)} ms, ${tried[i].fits ? "in time" : "too late"}; at this depth ${most === 0 ? "no step fits" : `up to ${fixed(most)} steps fit`}`),
    );
  }));
}

/** One bar; the numbers are in the table, so it is only a picture. */
function track(one, longest, deadline, kind) {
  const made = element("div", { class: `track ${kind}`, "aria-hidden": "true" });
  for (const part of ["forward", "backward", "upload"]) {
    const piece = element("i", { class: part });
    piece.style.width = `${Math.max(0, 100 * one[`${part}_ms`] / longest)}%`;
    made.append(piece);
  }
  const line = element("b");
  line.style.left = `${100 * deadline / longest}%`;
  made.append(line);
  return made;
}

function showTable() {
  const { devices, planned, tried } = answer;
  const times = (one) => ["forward_ms", "backward_ms", "upload_ms", "total_ms"].map((name) => fixed(one[name], 1));
  const header = ["device", "work", "trains", "steps", "bits", "forward ms", "backward ms", "upload ms", "total ms"];
  const part = initial.parts[answer.settings.first_trained];
  const rows = devices.flatMap((device, i) => [
    ...(planned ? [[`${i + 1}. ${device.label}`, "planned", planned[i].trains, fixed(planned[i].steps), fixed(planned[i].bits, 1), ...times(planned[i])]] : []),
    [`${i + 1}. ${device.label}`, "tried", part, fixed(answer.settings.steps), "32", ...times(tried[i])],
  ]);
  byId("table").replaceChildren(dataTable(header, rows, { words: [0, 1, 2], caption: "Planned and tried work" }));
}

// Controls -----------------------------------------------------------------------------------------------------------

const counts = () => Object.fromEntries(settings.boards.split(",").map((part) => part.split("*")).map(([name, count]) => [name, Number(count)]));

function showControls() {
  for (const name of NUMBERS) {
    byId(name).value = settings[name];
    const slider = byId(`${name}-slider`);
    if (slider) slider.value = settings[name];
  }
  byId("part").textContent = initial.parts[settings.first_trained];
  const present = counts();
  for (const { name } of initial.kinds) byId(`kind-${name}`).value = present[name] ?? 0;
}

function makeKinds() {
  byId("kinds").replaceChildren(...initial.kinds.map(({ name, label, is_assumed: isAssumed, source }) => element(
    "div", { class: "control count" },
    element("label", { for: `kind-${name}`, title: source }, `${label}${isAssumed ? " *" : ""}`),
    element("span", { class: "value" }, element("input", { type: "number", id: `kind-${name}`, min: "0", max: "40", step: "1", inputmode: "numeric", required: true })),
  )));
  byId("sources").replaceChildren(...initial.kinds.map(({ label, source, is_assumed: isAssumed }) => element("li", {}, `${label}${isAssumed ? " *" : ""}: ${source}.`)));
}

function change(name, field) {
  const value = Number(field.value);
  const isGood = field.value !== "" && field.checkValidity() && Number.isFinite(value);
  byId(name).setAttribute("aria-invalid", String(!isGood));
  if (!isGood) return;
  settings[name] = value;
  showControls();
  void replan();
}

function changeKinds() {
  const chosen = initial.kinds.map(({ name }) => [name, Math.trunc(Number(byId(`kind-${name}`).value) || 0)]).filter(([, count]) => count > 0);
  if (!chosen.length) { showError("Choose at least one board."); return; }
  settings.boards = chosen.map(([name, count]) => `${name}*${count}`).join(",");
  void replan();
}

makeKinds();
if (matchMedia("(max-width: 760px)").matches) byId("boards").open = false; // the bars come next there
for (const name of NUMBERS) {
  byId(name).addEventListener("input", (event) => change(name, event.target));
  byId(`${name}-slider`)?.addEventListener("input", (event) => change(name, event.target));
}
byId("kinds").addEventListener("input", changeKinds);
byId("use-best").addEventListener("click", () => { settings.deadline_ms = answer.best_deadline_ms; showControls(); void replan(); });
byId("controls").addEventListener("reset", (event) => { event.preventDefault(); settings = { ...initial.defaults }; showControls(); void replan(); });
byId("controls").addEventListener("submit", (event) => event.preventDefault());
showControls();
if (initial.error) showError(initial.error);
show();
