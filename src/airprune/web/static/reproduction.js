// The reproduction page: each claim of the paper, the measurement, and the verdict in a word.

import { byId, dataTable, element, fixed, say } from "./common.js";
import { badge, claimsTable, connectFolders, figure, start } from "./results.js";

let shown = null;

function show(found) {
  shown = found;
  say(byId("profile"), shown.profile ?? "");
  byId("verdicts").replaceChildren(...shown.verdicts.map((verdict) => element("div", {},
    element("dt", {}, verdict.word), element("dd", {}, badge(verdict, `${verdict.sign} ${verdict.count} of ${shown.num_claims}`)))));
  showClaims();
  for (const id of ["pictures-section", "tables-section", "runs-link"]) byId(id).hidden = start.folder === null;
  byId("pictures").replaceChildren(...shown.pictures.map((entry) => figure("reproduction", shown.name, entry)));
  if (shown.pictures.length === 0) byId("pictures").append(element("p", { class: "note" }, "The folder has no figure."));
  byId("tables").replaceChildren(...shown.tables.map(table));
  if (shown.tables.length === 0) byId("tables").append(element("p", { class: "note" }, "The folder has no table that can be read."));
}

function showClaims() {
  const only = byId("only").value;
  const claims = (shown.claims ?? []).filter((claim) => only === "" || claim.verdict.word === only);
  if (claims.length === 0) {
    const why = shown.claims === null ? "claims.json cannot be read." : "There is no such claim.";
    byId("claims").replaceChildren(element("p", { class: "note" }, why));
    return;
  }
  const left = shown.num_claims - shown.claims.length;
  byId("claims").replaceChildren(claimsTable(claims, ["where", "the paper claims", "verdict", "measured"], "Claims"),
    ...(left > 0 ? [element("p", { class: "note" }, `${fixed(left)} more claims are not shown.`)] : []));
}

function table(entry) {
  return element("div", {}, element("h3", {}, entry.title),
    dataTable(entry.header, entry.rows, { words: entry.words, caption: entry.file }));
}

for (const { word } of start.recorded.verdicts) byId("only").append(element("option", { value: word }, word));
byId("only").addEventListener("change", showClaims);
connectFolders("reproduction", "airprune reproduce all --quick", show);
