// What the league page and the reproduction page share: the folder that is shown, claims with verdicts, figures.

import { byId, dataTable, element, getJson, initialData, site } from "./common.js";

export const start = initialData();

const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

/** Connects the choice of a folder, and shows the first: `kind` is league or reproduction, `show` draws a folder. */
export function connectFolders(kind, command, show) {
  const complain = (sentence) => {
    byId("notice").textContent = sentence;
    byId("notice").hidden = false;
  };
  const choose = async (name) => {
    const query = new URLSearchParams({ folder: name });
    try {
      const found = await getJson(`/api/${kind}?${query}`);
      history.replaceState(null, "", `?${query}`);
      byId("notice").hidden = true;
      show(found);
    } catch (error) {
      complain(error.message);
    }
  };
  byId("none").hidden = start.folder !== null;
  byId("none-command").textContent = `${command} --out ${quoted(`${site.runs_dir}/${kind}`)}`;
  byId("which").hidden = start.folders.length < 2;
  byId("folder").replaceChildren(...start.folders.map((name) => element("option", { value: name }, name)));
  if (start.folder) byId("folder").value = start.folder.name;
  byId("folder").addEventListener("change", () => choose(byId("folder").value));
  if (start.unknown !== null) complain(`Not a ${kind} here: ${start.unknown}.`);
  show(start.folder ?? start.recorded);
}

/** The address of a file of the folder that is shown. */
export const fileLink = (kind, folder, file) => `/api/${kind}/file?${new URLSearchParams({ folder, file })}`;

/** Links that save files of a folder. */
export const downloads = (kind, folder, names) =>
  names.map((name) => element("a", { href: fileLink(kind, folder, name), download: name }, name));

export function figure(kind, folder, entry) {
  const src = fileLink(kind, folder, entry.file);
  const image = element("img", { src, alt: entry.alt, width: entry.width, height: entry.height, loading: "lazy", decoding: "async" });
  return element("figure", {}, element("a", { class: "picture", href: src, title: "Open the figure alone" }, image),
    element("figcaption", {}, entry.caption, " ", ...downloads(kind, folder, entry.files)));
}

export const badge = (verdict, text = `${verdict.sign} ${verdict.word}`) => element("span", { class: `badge ${verdict.kind}` }, text);

/** Claims as a table that becomes a list on a phone. */
export function claimsTable(claims, header, label) {
  const numbers = (claim) => (claim.numbers.length === 0 ? null
    : element("details", {}, element("summary", {}, "numbers"), dataTable(["of", "value"], claim.numbers, { words: [0] })));
  const rows = claims.map((claim) => [
    claim.where,
    element("span", {}, claim.text, claim.preset ? element("span", { class: "preset" }, claim.preset) : null),
    badge(claim.verdict),
    element("div", {}, claim.reason, numbers(claim)),
  ]);
  const made = dataTable(header, rows, { words: [0, 1, 2, 3] });
  made.classList.add("claims");
  made.setAttribute("aria-label", label);
  return made;
}
