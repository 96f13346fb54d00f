// What every page shares: data from the server, requests, themes, charts, small pieces of DOM. Text only ever enters
// the page through textContent.

const TOKEN_HEADER = "X-Airprune-Token";
const TOKEN_KEY = "airprune-token";

const embedded = (id) => JSON.parse(document.getElementById(id).textContent);

/** What the server knows of itself: allow_run, runs_dir, version, and where plotly is. */
export const site = embedded("site-data");

/** The JSON value that the server put into this page; null if none. */
export const initialData = () => embedded("initial-data");

// The token leaves the address bar at once, so that a copied link does not carry it; the tab remembers it.
const token = (() => {
  const url = new URL(location.href);
  const given = url.searchParams.get("token");
  if (given !== null) {
    url.searchParams.delete("token");
    history.replaceState(null, "", url);
  }
  try {
    if (given !== null) sessionStorage.setItem(TOKEN_KEY, given);
    return given ?? sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return given ?? "";
  }
})();

/** Whether this tab was opened with the printed address, and so may change things. */
export const hasToken = () => token !== "";

/** An answer that is not the one asked for; `message` is the server's sentence. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answered(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is `airprune web` still running?");
  }
  if (answer.ok) return answer;
  let sentence = `The server answered ${answer.status}.`;
  try { sentence = (await answer.json()).error ?? sentence; } catch { /* not JSON */ }
  throw new Refused(answer.status, sentence);
}

/** GET → JSON; throws Refused with the server's sentence. */
export const getJson = async (path, { signal } = {}) => (await answered(path, { signal })).json();

/** Any method → JSON, with the token. `body`: a string, a Blob, or a value that is sent as JSON. */
export async function sendJson(path, body, { method = "POST", signal, type } = {}) {
  const raw = typeof body === "string" || body instanceof Blob;
  const headers = { "Content-Type": type ?? (raw ? "text/plain" : "application/json") };
  if (token) headers[TOKEN_HEADER] = token;
  return (await answered(path, { method, signal, headers, body: raw ? body : JSON.stringify(body) })).json();
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** element("p", { class: "note", "aria-label": "…" }, "text", otherElement): text is never read as HTML. */
export function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...content.filter((part) => part !== null && part !== undefined));
  return made;
}

/** A table from a header and rows of texts, numbers or elements; `words`: indices of columns that hold text. */
export function dataTable(header, rows, { words = [], caption = "" } = {}) {
  const kind = (i) => (words.includes(i) ? {} : { class: "number" });
  const head = element("tr", {}, ...header.map((name, i) => element("th", { scope: "col", ...kind(i) }, name)));
  const lines = rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", kind(i), cell))));
  const table = element("table", {}, caption ? element("caption", {}, caption) : null,
    element("thead", {}, head), element("tbody", {}, ...lines));
  // A group, not a region: a page has many tables, and landmarks must be few and unlike.
  return element("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": caption || "Table" }, table);
}

const plainNumber = new Map();

/** A number with this many decimals and thin thousands, or a dash if there is none. */
export function fixed(value, decimals = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (!plainNumber.has(decimals)) {
    plainNumber.set(decimals, new Intl.NumberFormat("en", {
      minimumFractionDigits: decimals, maximumFractionDigits: decimals,
    }));
  }
  return plainNumber.get(decimals).format(value);
}

/** A recorded value of a measure as it stands under the measure's heading; `about` is what the server says of it. */
export function told(about, value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const scaled = value * about.scale;
  if (about.digits === undefined) return fixed(scaled, about.decimals);
  return Math.abs(scaled) >= 10 ** about.digits ? fixed(scaled) : String(+scaled.toPrecision(about.digits));
}

/** The same with its unit; `decimals` in place of the measure's own where there is little room. */
export function toldWithUnit(about, value, decimals = about.decimals) {
  return told({ ...about, decimals }, value) + (about.unit ? ` ${about.unit}` : "");
}

/** Sets text only where it changed, so that screen readers hear news and nothing else. */
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Themes ------------------------------------------------------------------------------------------------------------

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];
const themeListeners = [];

export const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemDark.matches;
};

/** Calls `listener` whenever light turns to dark or back. */
export const onThemeChange = (listener) => themeListeners.push(listener);

const cssValues = new Map(); // reading them makes the browser lay out the page, so each is read once per theme

/** A colour or any other custom property of the style sheet: `cssValue("--line")`. */
export function cssValue(name) {
  if (!cssValues.has(name)) {
    cssValues.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return cssValues.get(name);
}

function themeChanged() {
  cssValues.clear();
  themeListeners.forEach((listener) => listener());
}

function connectThemeButton() {
  const button = byId("theme");
  const current = () => document.documentElement.dataset.theme ?? "auto";
  const label = () => { button.textContent = `Theme: ${current()}`; };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("airprune-theme", next); } catch { /* remembered until the tab closes */ }
    label();
    themeChanged();
  });
  systemDark.addEventListener("change", themeChanged);
  label();
}
connectThemeButton();

// Charts ------------------------------------------------------------------------------------------------------------

let plotly = null;

/** Plotly, loaded by the first who asks for it: a page without a chart never does. The rest of a page does not wait. */
export function loadPlotly() {
  plotly ??= new Promise((resolve, reject) => {
    const script = element("script", { src: site.plotly });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => reject(new Error("The charts' script did not load.")));
    document.head.append(script);
  });
  return plotly;
}

/** A scheme's colour on this ground; the report's black turns light in the dark. */
export const onGround = (colour) => (isDark() && colour === "#000000" ? "#e3e7eb" : colour);

/** The size of a chart's text in pixels; it grows with the page's on very large screens. */
export const textSize = () => (matchMedia("(min-width: 3000px)").matches ? 17 : 13);

/** Plotly's layout in the looks of the page; `changes` go on top, axes are merged. */
export function chartLayout(changes = {}) {
  const line = cssValue("--line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
  const { xaxis = {}, yaxis = {}, ...rest } = changes;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: cssValue("--font"), size: textSize(), color: cssValue("--text") },
    margin: { l: 48, r: 12, t: 12, b: 40 },
    hoverlabel: { bgcolor: cssValue("--box"), bordercolor: line, font: { color: cssValue("--text") } },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

export const CHART_CONFIG = { displayModeBar: false, responsive: true };

/** Draws or redraws a chart: await drawChart(byId("curve"), traces, layout). */
export async function drawChart(target, traces, layout, config = {}) {
  const Plotly = await loadPlotly();
  return Plotly.react(target, traces, chartLayout(layout), { ...CHART_CONFIG, ...config });
}
