// Many runs as few curves: groups with their mean and interval over seeds, read and averaged by the server.

import { byId, cssValue, dataTable, drawChart, fixed, getJson, onGround } from "./common.js";
import { literal, roundTicks, shortened } from "./runs-charts.js";
import { coloursOf, firstKey, NO_COLOUR } from "./runs-colours.js";

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const MAX_IN_LEGEND = 16;
const MAX_BANDS = 24;

/** Asks for groups; of several questions in a row only the last one is answered. */
export class Groups {
  constructor(tell) {
    this.answer = null;
    this.tell = tell;
    this.key = "";
    this.asked = null;
  }

  /** `version` changes whenever one of the runs does; `then` is called once the answer is there. */
  async ask({ match, names, group, target, version }, then) {
    const pairs = match === null ? names.map((name) => ["run", name]) : [["match", match]];
    const query = new URLSearchParams([...pairs, ["group", group], ...(target === null ? [] : [["target", target]])]).toString();
    const key = `${query}\n${version}`;
    if (key === this.key) return;
    this.key = key;
    if (this.asked) return; // asked again when that one is answered
    this.asked = key;
    try {
      this.answer = await getJson(`/api/runs/groups?${query}`);
      then();
    } catch (error) {
      this.answer = null;
      this.tell(error.message);
    }
    this.asked = null;
    if (this.key !== key) {
      this.key = "";
      then();
    }
  }

  clear() {
    this.answer = null;
    this.key = "";
  }
}

/** The style of every group: colour by the key, dashes for further groups of the same colour. */
function styled(groups, keys, colour, styles) {
  const key = colour === "auto" ? firstKey(keys.filter((name) => groups.some((group) => name in group.values))) : colour;
  const colours = coloursOf(key, groups.map((group) => group.values[key]), styles);
  const seen = new Map();
  return groups.map((group) => {
    const value = group.values[key];
    const before = seen.get(value) ?? 0;
    seen.set(value, before + 1);
    return { key, value, colour: colours.get(value) ?? NO_COLOUR, dash: DASHES[before % DASHES.length], isFirst: before === 0 };
  });
}

const faded = (colour, alpha) => {
  const parts = colour.startsWith("#") ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/\d+/g);
  return `rgba(${parts.join(",")},${alpha})`;
};

export function drawGroups(target, answer, { columns, measure, against, measures, colour, styles, narrow, axes }) {
  const [x, y] = [columns.indexOf(against), columns.indexOf(measure)];
  const axis = measures[against];
  const isPercent = measures[measure].unit === "%";
  const { groups } = answer;
  const looks = styled(groups, answer.keys, colour, styles);
  const many = groups.length > MAX_IN_LEGEND;
  const traces = groups.flatMap((group, i) => {
    const points = group.mean.map((mean, j) => ({ x: mean[x], y: mean[y], half: group.half_width[j][y], count: group.count[j] }))
      .filter((point) => point.x !== null && point.y !== null).map((point) => ({ ...point, x: point.x * axis.axis_scale }));
    const shade = onGround(looks[i].colour);
    const name = many && looks[i].value !== undefined ? `${looks[i].key} = ${looks[i].value}` : group.label;
    const line = {
      type: "scatter", mode: many ? "lines" : "lines+markers", name: literal(shortened(name, narrow ? 26 : 60)),
      x: points.map((point) => point.x), y: points.map((point) => point.y),
      text: points.map((point) => `${literal(group.label)}<br>${point.half === null ? "" : `± ${isPercent ? `${fixed(100 * point.half, 2)} points` : point.half.toPrecision(3)}, `}${point.count === 1 ? "1 run" : `${point.count} runs`}`),
      line: { color: many ? faded(shade, 0.75) : shade, dash: many ? "solid" : looks[i].dash, width: many ? 1.2 : 2.2 }, marker: { color: shade, size: 6, maxdisplayed: 14 },
      legendgroup: many ? String(looks[i].value) : String(i), showlegend: !many || looks[i].isFirst,
      hovertemplate: `${isPercent ? "%{y:.2%}" : "%{y:.4~g}"} at %{x:,.6~g}<extra>%{text}</extra>`,
    };
    const banded = points.filter((point) => point.half !== null);
    if (banded.length < 2 || groups.length > MAX_BANDS) return [line];
    return [{
      type: "scatter", mode: "lines", fill: "toself", fillcolor: faded(shade.startsWith("#") || shade.startsWith("rgb") ? shade : NO_COLOUR, 0.16), line: { width: 0 },
      x: [...banded.map((point) => point.x), ...banded.map((point) => point.x).reverse()],
      y: [...banded.map((point) => point.y + point.half), ...banded.map((point) => point.y - point.half).reverse()],
      hoverinfo: "skip", showlegend: false, legendgroup: String(i),
    }, line];
  });
  const longest = Math.max(0, ...traces.map((trace) => trace.x.at(-1) ?? 0));
  const entries = traces.filter((trace) => trace.showlegend).length;
  const lines = Math.ceil(entries / Math.max(1, Math.floor(target.clientWidth / 230)));
  target.style.height = `calc(clamp(280px, 42vh, 620px) + ${19 * Math.min(lines, 16)}px)`;
  // The interval of a share may reach beyond 0 and 1; the axis does not follow it there.
  const bounds = isPercent && axes.y.type !== "log" ? { minallowed: -0.02, maxallowed: 1.02 } : {};
  return drawChart(target, traces, {
    height: target.clientHeight, // plotly would keep the height of the chart before
    showlegend: true, hovermode: "closest", margin: { l: 52, r: 10, t: 8, b: 46 },
    legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0, font: { size: 12 }, itemclick: false, itemdoubleclick: false },
    xaxis: { title: { text: axis.axis_label, standoff: 8 }, ...roundTicks(against, longest, axes), ...axes.x, zerolinecolor: cssValue("--line") },
    yaxis: { title: { text: measures[measure].axis_label, standoff: 6 }, ...(isPercent ? { tickformat: ".0%" } : {}), ...bounds, ...axes.y },
  });
}

/** Last round and, with a target, what it took to reach it: mean ± 95 % interval over the runs of each group. */
export function groupsTable(answer, { told, toTarget, measures, target }) {
  const withTarget = target !== null && answer.groups.some((group) => group.to_target);
  const header = ["group", "runs", ...(withTarget ? ["reached", ...toTarget.map((measure) => measures[measure].heading)] : []),
    ...told.map((measure) => measures[measure].brief)];
  const rows = answer.groups.map((group) => [group.label, fixed(group.num_runs),
    ...(withTarget ? [group.to_target.reached, ...toTarget.map((measure) => group.to_target[measure])] : []),
    ...told.map((measure) => group.last[measure] ?? "–")]);
  const shown = rows.slice(0, 600);
  const more = rows.length > shown.length ? ` The first 600 of ${fixed(rows.length)} groups.` : "";
  return dataTable(header, shown, { words: [0], caption: `Last global round, mean ± half-width of the 95 % interval over the runs of a group.${more}` });
}

export function groupNotes(answer) {
  const notes = [];
  if (answer.num_left_out) notes.push(`${fixed(answer.num_left_out)} more runs match; the last written 500 are compared.`);
  if (answer.num_unreadable) notes.push(`${fixed(answer.num_unreadable)} runs have a scenario that cannot be read and are excluded.`);
  if (answer.groups.length > MAX_BANDS) notes.push(`Bands are drawn for up to ${MAX_BANDS} curves; here they would hide each other. The table has the intervals.`);
  if (answer.groups.some((group) => group.is_thinned)) notes.push("Evenly spaced rounds are drawn.");
  const without = answer.groups.filter((group) => group.mean.length === 0).length;
  if (without) notes.push(`${fixed(without)} groups have not finished a global round yet.`);
  return notes;
}

/** The choices of a select, kept where they still exist. */
export function fillChoices(id, choices, value) {
  const select = byId(id);
  const texts = choices.map(([name, text]) => `${name}\n${text}`).join("\n\n");
  if (select.dataset.choices !== texts) {
    select.dataset.choices = texts;
    select.replaceChildren(...choices.map(([name, text]) => new Option(text, name)));
  }
  select.value = choices.some(([name]) => name === value) ? value : choices[0][0];
}
