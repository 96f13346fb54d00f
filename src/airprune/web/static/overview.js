// The first page: what has been measured, from the results that come with the package.

import { byId, dataTable, element, initialData, say } from "./common.js";

const start = initialData();
const SHOWN_IN_LEAGUE = 8;
const ABOVE = ["adaptive-pruning", "frozen-pruning", "adaptive-bits", "no-pruning"];
const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

/** A line per method: its difference to no pruning and the interval; small enough for a phone. */
function priceChart(prices) {
  const known = prices.filter((price) => price.points !== null);
  const lowest = Math.floor(Math.min(...known.map((price) => price.points - (price.half_width ?? 0))));
  const highest = Math.max(1, Math.ceil(Math.max(...known.map((price) => price.points + (price.half_width ?? 0)))));
  const [width, row, left, right] = [420, 46, 14, 16];
  const height = 30 + row * known.length + 24;
  const x = (points) => left + ((points - lowest) / (highest - lowest)) * (width - left - right);
  const image = drawn("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" });
  for (let points = lowest; points <= highest; points += 1) {
    image.append(drawn("line", { x1: x(points), x2: x(points), y1: 24, y2: height - 22, class: points === 0 ? "zero" : "" }),
      drawn("text", { x: x(points), y: height - 6, "text-anchor": "middle", class: "quiet" }, points > 0 ? `+${points}` : String(points).replace("-", "−")));
  }
  image.append(drawn("text", { x: x(0), y: 15, "text-anchor": "end", class: "quiet" }, "difference in points, no pruning → "));
  known.forEach((price, i) => {
    const y = 46 + row * i;
    const [low, high] = [price.points - (price.half_width ?? 0), price.points + (price.half_width ?? 0)];
    image.append(drawn("text", { x: left, y: y + 4 - 14 }, `${price.method}: ${price.difference}`),
      drawn("line", { x1: x(low), x2: x(high), y1: y + 8, y2: y + 8, class: "interval" }),
      drawn("circle", { cx: x(price.points), cy: y + 8, r: 6 }));
  });
  return image;
}

function showPrices() {
  const { prices } = start;
  const [paper, fair] = ["adaptive-pruning", "variance"].map((name) => prices.find(({ method }) => method.endsWith(name)));
  say(byId("price-words"), `With the paper’s allocation pruning costs accuracy: ${paper.difference} points against no pruning. With bandwidth `
    + `allocated fairly (variance) the difference is ${fair.difference} points in about the same time and bits. Every method has its tuned `
    + "values; uplink, downlink and backhaul are charged; time is that of the paper’s clock.");
  byId("price-chart").replaceChildren(priceChart(prices));
  byId("price-table").replaceChildren(dataTable(["method", "learning rate", "accuracy (%)", "difference (points)", "time (s)", "all links (Mbit)", "energy (J)"],
    prices.map((price) => [price.method, price.rate, price.accuracy, price.difference, price.time, price.bits, price.energy]),
    { words: [0], caption: "Whole runs on the paper’s clock; all links charged" }));
  say(byId("price-about"), `${start.about_prices}. Recorded: docs/promise.md.`);
}

function showVerdicts() {
  byId("verdicts").replaceChildren(...start.verdicts.map((verdict) => element("div", {}, element("dt", {}, verdict.word),
    element("dd", {}, element("span", { class: `badge ${verdict.kind}` }, `${verdict.sign} ${verdict.count} of ${start.num_claims}`)))));
  byId("exceptions").replaceChildren(...start.exceptions.map((claim) => element("li", {},
    element("span", { class: `badge ${claim.verdict.kind}` }, `${claim.verdict.sign} ${claim.verdict.word}`), ` ${claim.text} `,
    element("span", { class: "note" }, `(${claim.where})`))));
  say(byId("reproduction-about"), `${start.about_reproduction} Recorded: docs/reproduction.md.`);
}

function showLeague() {
  const { league } = start;
  const [table] = league.tables;
  const method = table.header.indexOf("method");
  const plain = (name) => name.replace(/[\s◇†]+$/u, "");
  const chosen = table.rows.filter((row, i) => i < SHOWN_IN_LEAGUE || ABOVE.includes(plain(row[method])));
  const columns = table.header.map((_, i) => i).filter((i) => !["origin", "rank"].includes(table.header[i])).slice(0, 4);
  const made = dataTable(columns.map((i) => table.header[i]), chosen.map((row) => columns.map((i) => row[i])),
    { words: [0], caption: `${chosen.length} of ${table.rows.length}: the first ${SHOWN_IN_LEAGUE}, and the methods above` });
  made.querySelectorAll("tbody tr").forEach((line, i) => line.classList.toggle("own", ABOVE.includes(plain(chosen[i][method]))));
  byId("standings").replaceChildren(made);
  say(byId("league-words"), `Track ${league.name}, ${league.title}: ${league.about}`);
  say(byId("league-about"), `${league.notes[0] ?? ""} ${start.about_league.replace(/ How to read it: .*$/, "")} Recorded: docs/league-results.md.`);
}

showPrices();
showVerdicts();
showLeague();
