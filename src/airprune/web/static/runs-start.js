// Starting a run: a form made from the scenario's fields, or TOML; the server says what is wrong with it.

import { byId, element, getJson, hasToken, say, sendJson, site } from "./common.js";

const WAIT_MS = 250;

const changes = new Map();
const address = new URLSearchParams(location.search); // before the page rewrites it
const given = address.getAll("set");
let form = null;
let checking = null;
let timer = null;
let folderIsOurs = true;
let isFine = false;

/** Shows the form, or says why there is none. `take` is told what the server answers to a start. */
export async function connectStart({ mayRun, take, quoted }) {
  if (!mayRun) {
    const refused = site.allow_run && !hasToken()
      ? "This tab may only look. To start runs, open the address that the server printed: it carries the token."
      : "This server only shows runs. To start them from this page, start it as:";
    say(byId("start-refused"), refused);
    byId("start-refused").hidden = false;
    byId("start-command").hidden = site.allow_run;
    byId("start-command").firstElementChild.textContent = `airprune web ${quoted(site.runs_dir)} --allow-run`;
    return;
  }
  try {
    form = await getJson("/api/scenario/form");
  } catch (error) {
    say(byId("start-refused"), error.message);
    byId("start-refused").hidden = false;
    return;
  }
  byId("start-form").hidden = false;
  byId("preset").replaceChildren(...Object.keys(form.presets).map((name) => element("option", { value: name }, name)));
  byId("preset").value = [address.get("preset"), "smoke", Object.keys(form.presets)[0]].find((name) => name in form.presets);
  byId("sections").replaceChildren(...form.sections.map(newSection));
  takeFromAddress();
  showValues();
  byId("preset").addEventListener("change", () => { showValues(); checkSoon(); });
  byId("toml").addEventListener("input", checkSoon);
  byId("folder").addEventListener("input", () => { folderIsOurs = byId("folder").value === ""; });
  byId("find-field").addEventListener("input", showFound);
  byId("reset-fields").addEventListener("click", () => { changes.clear(); showValues(); checkSoon(); });
  for (const radio of document.getElementsByName("source")) radio.addEventListener("change", sourceChanged);
  byId("start-form").addEventListener("submit", (event) => { event.preventDefault(); startRun(take); });
  check();
}

/** Settings that another page has filled in: ?set=key=value, as on a command line. */
function takeFromAddress() {
  const known = new Set(allFields().map(({ key }) => key));
  for (const pair of given) {
    const at = pair.indexOf("=");
    if (known.has(pair.slice(0, at))) changes.set(pair.slice(0, at), pair.slice(at + 1));
  }
  for (const key of changes.keys()) inputOf(key).closest("details")?.setAttribute("open", "");
  if (changes.size) byId("start").scrollIntoView();
}

const usesToml = () => document.querySelector('input[name="source"]:checked').value === "toml";
const preset = () => form.presets[byId("preset").value];
const allFields = () => form.sections.flatMap((section) => section.fields);
const fieldOf = (key) => allFields().find((field) => field.key === key);

/** What a field has unless it is changed: the method's value if another one is chosen, the preset's, or the default. */
function unchanged(key) {
  const method = changes.get("method");
  return form.methods[method]?.values[key] ?? preset().values[key] ?? fieldOf(key).default;
}

const current = (key) => changes.get(key) ?? unchanged(key);

/** Options belong to a component and count only while it is chosen. */
const isNeeded = (field) => !field.needs || field.needs.keys.some((key) => current(key) === field.needs.name);

const counted = () => new Map([...changes].filter(([key]) => isNeeded(fieldOf(key))));

function wanted() {
  if (usesToml()) return { toml: byId("toml").value };
  return { preset: byId("preset").value, overrides: Object.fromEntries(counted()) };
}

function sourceChanged() {
  byId("by-form").hidden = usesToml();
  byId("by-toml").hidden = !usesToml();
  if (usesToml() && byId("toml").value === "") {
    byId("toml").value = `base = "${byId("preset").value}"\n${tomlOf(counted())}`;
  }
  checkSoon();
}

/** What has been changed in the form, as a start for a TOML text. */
function tomlOf(values) {
  const value = (text) => (/^(true|false|\[.*\]|[-+]?[\d_]+(\.\d+)?([eE][-+]?\d+)?)$/.test(text) ? text : JSON.stringify(text));
  const lines = [];
  let section = "";
  for (const [key, text] of [...values].sort(([a], [b]) => a.includes(".") - b.includes(".") || (a < b ? -1 : 1))) {
    const dot = key.lastIndexOf(".");
    const [part, name] = [key.slice(0, Math.max(dot, 0)), key.slice(dot + 1)];
    if (part !== section) lines.push(`[${part}]`);
    section = part;
    lines.push(`${name} = ${value(text)}`);
  }
  return lines.length ? `${lines.join("\n")}\n` : "";
}

// The form ----------------------------------------------------------------------------------------------------------

function newSection(section) {
  const fields = element("div", { class: "fields" }, ...section.fields.map(newField));
  if (section.name === "") return element("div", {}, fields);
  const count = element("span", { class: "hint", "data-count": section.name });
  return element("details", { "data-section": section.name },
    element("summary", {}, element("b", {}, section.name), ` ${section.about} `, count), fields);
}

function newField(field) {
  const id = `field-${field.key}`;
  const about = `${id}-about`;
  const common = { id, "aria-describedby": about, "data-key": field.key };
  let input;
  if (field.choices.length) {
    input = element("select", common, ...field.choices.map((choice) => element("option", { value: choice }, choice)));
  } else {
    input = element("input", { ...common, type: "text", spellcheck: "false", inputmode: field.is_number ? "decimal" : null,
      list: field.names.length ? `${id}-names` : null });
  }
  input.addEventListener(field.choices.length ? "change" : "input", () => fieldChanged(field.key, input));
  const names = field.names.length
    ? element("datalist", { id: `${id}-names` }, ...field.names.map((name) => element("option", { value: name }))) : null;
  return element("div", { class: "field" }, element("label", { for: id }, field.key), input, names,
    element("p", { class: "hint", id: about }));
}

const inputOf = (key) => byId(`field-${key}`);

function fieldChanged(key, input) {
  if (input.value === preset().values[key]) changes.delete(key);
  else changes.set(key, input.value);
  if (key === "method" || allFields().some((field) => field.needs?.keys.includes(key))) showValues();
  showField(key);
  showCounts();
  checkSoon();
}

function showField(key) {
  const [input, field] = [inputOf(key), fieldOf(key)];
  const box = input.closest(".field");
  box.classList.toggle("changed", changes.has(key));
  box.classList.toggle("unneeded", !isNeeded(field));
  const [was, home] = key in preset().values ? [preset().values[key], "Preset"] : [field.default, "Default"];
  say(byId(`field-${key}-about`), [field.about, `${home}: ${was}`].filter(Boolean).join(". "));
}

function showValues() {
  say(byId("preset-about"), preset().about);
  for (const { key } of allFields()) {
    if (changes.get(key) === preset().values[key]) changes.delete(key);
    const input = inputOf(key);
    if (input !== document.activeElement) input.value = current(key);
    showField(key);
  }
  showCounts();
}

function showCounts() {
  for (const target of document.querySelectorAll("[data-count]")) {
    const count = [...counted().keys()].filter((key) => key.startsWith(`${target.dataset.count}.`)).length;
    say(target, count ? `· ${count} changed` : "");
  }
  byId("reset-fields").disabled = changes.size === 0;
}

function showFound() {
  const words = byId("find-field").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const part of byId("sections").children) {
    let found = 0;
    for (const field of part.querySelectorAll(".field")) {
      const hit = words.every((word) => field.textContent.toLowerCase().includes(word));
      field.hidden = !hit;
      found += hit;
    }
    part.hidden = found === 0;
    if (part.tagName === "DETAILS") part.open = words.length > 0 && found > 0;
  }
}

// Checking and starting ---------------------------------------------------------------------------------------------

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(check, WAIT_MS);
}

async function check() {
  clearTimeout(timer);
  checking?.abort();
  const mine = new AbortController();
  checking = mine;
  let answer = null;
  let problem = "";
  try {
    answer = await sendJson("/api/scenario/check", wanted(), { signal: mine.signal });
  } catch (error) {
    if (error.name === "AbortError") return false;
    problem = error.message;
  }
  if (checking !== mine) return false;
  isFine = answer !== null;
  showCheck(answer, problem);
  return isFine;
}

function showCheck(answer, problem) {
  for (const input of document.querySelectorAll('#sections [aria-invalid="true"]')) input.removeAttribute("aria-invalid");
  const box = byId("check");
  box.className = `box ${problem ? "bad" : "open"}`;
  byId("start-button").disabled = problem !== "";
  if (problem) {
    say(box, problem);
    const field = problem.match(/^Scenario\.([a-z0-9_]+(?:\.[a-z0-9_-]+){0,2})/)?.[1];
    if (field && !usesToml()) inputOf(field)?.setAttribute("aria-invalid", "true");
    return;
  }
  const than = usesToml() ? "the defaults, which are the paper's" : `preset ${byId("preset").value}`;
  const listed = answer.differs.slice(0, 8).map(([key, here, was]) => `${key} = ${here} (was ${was})`).join(", ");
  const more = answer.differs.length > 8 ? ` and ${answer.differs.length - 8} more` : "";
  say(box, answer.differs.length ? `Valid. Differs from ${than} in ${listed}${more}.` : `Valid. The same as ${than}.`);
  say(byId("same-command"), answer.command);
  if (folderIsOurs) byId("folder").value = answer.folder;
}

async function startRun(take) {
  if (!(await check())) return;
  const button = byId("start-button");
  button.disabled = true;
  try {
    const work = await sendJson("/api/work/start", { ...wanted(), name: byId("folder").value });
    folderIsOurs = true;
    take(work);
    byId("curves-title").scrollIntoView({ block: "center" });
    checkSoon();
  } catch (error) {
    byId("check").className = "box bad";
    say(byId("check"), error.message);
  } finally {
    button.disabled = false;
  }
}
