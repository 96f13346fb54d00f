// The reproduction page: what the paper claims, what was measured, and the verdict in a word.

import { byId, dataTable, element, fixed, getJson, initialData, say, site } from "./common.js";

const start = initialData();
const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);
const badge = (verdict, text) => element("span", { class: `badge ${verdict.kind}` }, text);

let shown = start.folder ?? start.recorded;

function fileLink(name) {
  const query = new URLSearchParams({ folder: shown.name, file: name });
  return `/api/reproduction/file?${query}`;
}

function show() {
  byId("none").hidden = start.folder !== null;
  say(byId("profile"), shown.profile ?? "");
  byId("verdicts").replaceChildren(...shown.verdicts.map((verdict) => element("div", {},
    element("dt", {}, verdict.word), element("dd", {}, badge(verdict, `${verdict.sign} ${verdict.count} of ${shown.num_claims}`)))));
  showClaims();
  for (const id of ["pictures-section", "tables-section", "runs-link"]) byId(id).hidden = start.folder === null;
  byId("pictures").replaceChildren(...shown.pictures.map(picture));
  if (shown.pictures.length === 0) byId("pictures").append(element("p", { class: "note" }, "The folder has no picture."));
  byId("tables").replaceChildren(...shown.tables.map(table));
  if (shown.tables.length === 0) byId("tables").append(element("p", { class: "note" }, "The folder has no table that can be read."));
  byId("runs-link").replaceChildren("Its runs are on the page ", element("a", { href: "/runs" }, "Runs"), ".");
}

function showClaims() {
  const only = byId("only").value;
  const claims = (shown.claims ?? []).filter((claim) => only === "" || claim.verdict.word === only);
  if (claims.length === 0) {
    const why = shown.claims === null ? "claims.json cannot be read." : "There is no such claim.";
    byId("claims").replaceChildren(element("p", { class: "note" }, why));
    return;
  }
  const rows = claims.map((claim) => [
    claim.where,
    element("span", {}, claim.text, claim.preset ? element("span", { class: "preset" }, claim.preset) : null),
    badge(claim.verdict, `${claim.verdict.sign} ${claim.verdict.word}`),
    element("div", {}, claim.reason, numbers(claim)),
  ]);
  const made = dataTable(["where", "the paper claims", "verdict", "measured"], rows, { words: [0, 1, 2, 3] });
  made.classList.add("claims");
  made.setAttribute("aria-label", "Claims");
  const left = shown.num_claims - (shown.claims ?? []).length;
  byId("claims").replaceChildren(made, ...(left > 0 ? [element("p", { class: "note" }, `${fixed(left)} more claims are not shown.`)] : []));
}

function numbers(claim) {
  if (claim.numbers.length === 0) return null;
  return element("details", {}, element("summary", {}, "numbers"), dataTable(["of", "value"], claim.numbers, { words: [0] }));
}

function picture(entry) {
  const image = element("img", { src: fileLink(entry.file), alt: entry.alt, width: entry.width, height: entry.height, loading: "lazy", decoding: "async" });
  const links = entry.files.map((name) => element("a", { href: fileLink(name), download: name }, name));
  return element("figure", {}, element("a", { class: "picture", href: fileLink(entry.file), title: "Open the picture alone" }, image),
    element("figcaption", {}, entry.caption, " ", ...links));
}

function table(entry) {
  return element("div", {}, element("h3", {}, entry.title),
    dataTable(entry.header, entry.rows, { words: entry.words, caption: entry.file }));
}

async function choose(name) {
  try {
    shown = await getJson(`/api/reproduction?${new URLSearchParams({ folder: name })}`);
    history.replaceState(null, "", `?${new URLSearchParams({ folder: name })}`);
    byId("notice").hidden = true;
    show();
  } catch (error) {
    byId("notice").textContent = error.message;
    byId("notice").hidden = false;
  }
}

byId("none-command").textContent = `airprune reproduce all --quick --out ${quoted(`${site.runs_dir}/reproduction`)}`;
byId("which").hidden = start.folders.length < 2;
byId("folder").replaceChildren(...start.folders.map((name) => element("option", { value: name }, name)));
if (start.folder) byId("folder").value = shown.name;
byId("folder").addEventListener("change", () => choose(byId("folder").value));
for (const verdict of shown?.verdicts ?? []) byId("only").append(element("option", { value: verdict.word }, verdict.word));
byId("only").addEventListener("change", showClaims);
if (start.unknown !== null) {
  byId("notice").textContent = `Not a reproduction here: ${start.unknown}.`;
  byId("notice").hidden = false;
}
show();
