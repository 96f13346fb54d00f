// Colours by what runs differ in: a scheme has the report's, numbers a scale from dark to bright, names a palette.

import { isDark } from "./common.js";

const PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7a828a", "#8c564b"];
const SCALE = { light: [[68, 1, 84], [49, 104, 142], [31, 140, 110], [176, 150, 10]], dark: [[180, 140, 255], [90, 170, 235], [70, 205, 150], [250, 220, 60]] };
const NONE = "#7a828a";

const isNumber = (text) => text !== "" && Number.isFinite(Number(text));

function onScale(share) {
  const stops = isDark() ? SCALE.dark : SCALE.light;
  const at = Math.min(share * (stops.length - 1), stops.length - 1.0001);
  const [low, high] = [stops[Math.floor(at)], stops[Math.floor(at) + 1]];
  const mixed = low.map((value, i) => Math.round(value + (at % 1) * (high[i] - value)));
  return `rgb(${mixed.join(",")})`;
}

/** Value → colour, in the order in which a legend lists them. */
export function coloursOf(key, values, styles) {
  const known = [...new Set(values.filter((value) => value !== undefined))];
  const numeric = known.every(isNumber);
  known.sort((a, b) => (numeric ? Number(a) - Number(b) : a < b ? -1 : 1));
  const scaled = known.length > PALETTE.length || (numeric && known.length > 3);
  return new Map(known.map((value, i) => [value, key === "plan.scheme" && styles[value] ? styles[value].colour
    : scaled ? onScale(known.length > 1 ? i / (known.length - 1) : 0) : PALETTE[i]]));
}

/** What a colour tells unless something else is asked for: the first key in which they differ; the seed if no other does. */
export const firstKey = (keys) => keys.find((key) => key !== "seed" && key !== "name") ?? keys.find((key) => key === "seed") ?? null;

export const NO_COLOUR = NONE;
