// The league page: who is ahead, by how much, at which cost; one division at a time.

import { byId, dataTable, element, getJson, initialData, say, site } from "./common.js";

const start = initialData();
const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

let shown = start.folder ?? start.recorded;

function fileLink(name) {
  return `/api/league/file?${new URLSearchParams({ folder: shown.name, file: name })}`;
}

const downloads = (names) => names.map((name) => element("a", { href: fileLink(name), download: name }, name));

function show() {
  byId("none").hidden = start.folder !== null;
  say(byId("note"), shown.is_readable ? shown.note : "league.json cannot be read.");
  byId("division").replaceChildren(...shown.divisions.map((one, i) => element("option", { value: i }, `${one.name}: ${one.title}`)));
  byId("which-division").hidden = shown.divisions.length === 0;
  byId("files").replaceChildren(...downloads(shown.files));
  showDivision();
  showClaims();
}

function showDivision() {
  const division = shown.divisions[Number(byId("division").value || 0)];
  say(byId("about"), division?.about ?? "");
  ["standings", "conduct"].forEach((id, i) => byId(id).replaceChildren(...table(division?.tables[i])));
  byId("notes").replaceChildren(...(division?.notes ?? []).map((note) => element("li", {}, note)));
  byId("picture-section").hidden = start.folder === null;
  byId("picture").replaceChildren(...picture(division));
}

/** With the origin, which comes last, under the method's name. */
function table(found) {
  if (!found || found.rows.length === 0) return [element("p", { class: "note" }, "There is nothing to show.")];
  const { words } = found;
  const method = found.header.indexOf("method");
  if (found.header.at(-1) !== "origin" || method < 0) return [dataTable(found.header, found.rows, { words })];
  const named = (row) => element("span", {}, row[method], element("span", { class: "origin" }, row.at(-1)));
  const rows = found.rows.map((row) => row.slice(0, -1).map((cell, i) => (i === method ? named(row) : cell)));
  return [dataTable(found.header.slice(0, -1), rows, { words })];
}

function picture(division) {
  const found = division?.picture;
  if (!found) return [element("p", { class: "note" }, "The division has no picture.")];
  const alt = `Division ${division.name}: test accuracy against simulated seconds, uploaded bits and joules. The numbers are in league.csv.`;
  const image = element("img", { src: fileLink(found.file), alt, width: found.width, height: found.height, decoding: "async" });
  const caption = "Every cloud model of every method, mean over seeds; large markers: those that nobody beats. ";
  return [element("figure", {}, element("a", { class: "picture", href: fileLink(found.file), title: "Open the picture alone" }, image),
    element("figcaption", {}, caption, ...downloads(found.files)))];
}

function showClaims() {
  byId("claims-section").hidden = shown.claims.length === 0;
  const rows = shown.claims.map((claim) => [
    claim.where,
    claim.text,
    element("span", { class: `badge ${claim.verdict.kind}` }, `${claim.verdict.sign} ${claim.verdict.word}`),
    element("div", {}, claim.reason, claim.numbers.length === 0 ? null
      : element("details", {}, element("summary", {}, "numbers"), dataTable(["of", "value"], claim.numbers, { words: [0] }))),
  ]);
  byId("claims").replaceChildren(dataTable(["source", "claim", "verdict", "measured"], rows, { words: [0, 1, 2, 3] }));
}

async function choose(name) {
  try {
    shown = await getJson(`/api/league?${new URLSearchParams({ folder: name })}`);
    history.replaceState(null, "", `?${new URLSearchParams({ folder: name })}`);
    byId("notice").hidden = true;
    show();
  } catch (error) {
    byId("notice").textContent = error.message;
    byId("notice").hidden = false;
  }
}

byId("none-command").textContent = `airprune league --quick --out ${quoted(`${site.runs_dir}/league`)}`;
byId("which").hidden = start.folders.length < 2;
byId("folder").replaceChildren(...start.folders.map((name) => element("option", { value: name }, name)));
if (start.folder) byId("folder").value = shown.name;
byId("folder").addEventListener("change", () => choose(byId("folder").value));
byId("division").addEventListener("change", showDivision);
if (start.unknown !== null) {
  byId("notice").textContent = `Not a league here: ${start.unknown}.`;
  byId("notice").hidden = false;
}
show();
