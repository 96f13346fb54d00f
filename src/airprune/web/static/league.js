// The league page: the ranking of the methods and their costs, one track at a time, and the claims of their sources.

import { byId, dataTable, element, say } from "./common.js";
import { claimsTable, connectFolders, downloads, figure, start } from "./results.js";

const FIRST_ROWS = 10;

let shown = null;
let showsAll = false;

function show(found) {
  shown = found;
  say(byId("note"), shown.is_readable ? shown.note : "league.json cannot be read.");
  byId("track").replaceChildren(...shown.divisions.map((one, i) => element("option", { value: i }, `${one.name}: ${one.title}`)));
  byId("which-track").hidden = shown.divisions.length === 0;
  byId("files").replaceChildren(...downloads("league", shown.name, shown.files));
  showTrack();
  showClaims("claims", shown.claims);
  showClaims("recorded-claims", start.folder === null ? [] : start.recorded.claims);
}

function showTrack() {
  const track = shown.divisions[Number(byId("track").value || 0)];
  const [standings, diagnostics] = track?.tables ?? [];
  say(byId("lead"), track ? leadingSentence(track, standings) : "");
  say(byId("about"), track?.about ?? "");
  byId("standings").replaceChildren(...table(standings, showsAll ? Infinity : FIRST_ROWS));
  const numRows = standings?.rows.length ?? 0;
  byId("all").hidden = numRows <= FIRST_ROWS;
  byId("all").textContent = showsAll ? `Show the first ${FIRST_ROWS}` : `Show all ${numRows} rows`;
  byId("all").setAttribute("aria-expanded", String(showsAll));
  byId("diagnostics").replaceChildren(...table(diagnostics, showsAll ? Infinity : FIRST_ROWS));
  byId("notes").replaceChildren(...(track?.notes ?? []).map((note) => element("li", {}, note)));
  byId("picture-section").hidden = start.folder === null;
  byId("picture").replaceChildren(trackFigure(track));
}

/** Names the first method of the standings and its accuracy. */
function leadingSentence(track, standings) {
  const method = standings?.header.indexOf("method") ?? -1;
  const rank = standings?.header.indexOf("rank") ?? -1;
  const ranked = standings?.rows.filter((row) => row[rank] !== "–") ?? [];
  const [first] = ranked;
  if (!first || method < 0) return `Track ${track.name}, ${track.title}: no standings.`;
  const numFirst = ranked.filter((row) => row[rank].split("–")[0] === "1").length; // a range: 1–4
  const place = numFirst > 1 ? `${numFirst} may be first, by the mean ${first[method]}` : `${first[method]} is first`;
  const accuracy = standings.header[method + 1];
  return `Of ${ranked.length} methods in track ${track.name} (${track.title}), ${place}`
    + (accuracy === undefined ? "." : `; ${accuracy}: ${first[method + 1]}.`);
}

/** With the origin, which comes last, under the method's name. */
function table(found, limit) {
  if (!found || found.rows.length === 0) return [element("p", { class: "note" }, "There is nothing to show.")];
  const { words } = found;
  const shownRows = found.rows.slice(0, limit);
  const method = found.header.indexOf("method");
  if (found.header.at(-1) !== "origin" || method < 0) return [dataTable(found.header, shownRows, { words })];
  const named = (row) => element("span", {}, row[method], element("span", { class: "origin" }, row.at(-1)));
  const rows = shownRows.map((row) => row.slice(0, -1).map((cell, i) => (i === method ? named(row) : cell)));
  return [dataTable(found.header.slice(0, -1), rows, { words })];
}

function trackFigure(track) {
  if (!track?.picture) return element("p", { class: "note" }, "The track has no figure.");
  const alt = `Track ${track.name}: test accuracy against simulated seconds, bits and joules. The numbers are in league.csv.`;
  const caption = "Every cloud model of every method, mean over seeds; large markers: those that no other method beats.";
  return figure("league", shown.name, { ...track.picture, alt, caption });
}

function showClaims(id, claims) {
  byId(`${id}-section`).hidden = claims.length === 0;
  if (claims.length > 0) byId(id).replaceChildren(claimsTable(claims, ["source", "claim", "verdict", "measured"], byId(`${id}-title`).textContent));
}

byId("track").addEventListener("change", showTrack);
byId("all").addEventListener("click", () => { showsAll = !showsAll; showTrack(); });
connectFolders("league", "airprune league --quick", show);
