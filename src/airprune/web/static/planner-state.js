// The state of the planner and how an address spells it: settings and moved devices in the query, a small table after #.

import { byId } from "./common.js";

export const NUMBERS = ["deadline_ms", "max_pruning", "bandwidth_mhz", "transmit_power_dbm", "num_edges",
  "devices_per_edge", "inner_m", "outer_m", "cpu_ghz", "cpu_spread", "seed"];

/** Settings that a table replaces. */
export const NETWORK_ONLY = ["transmit_power_dbm", "num_edges", "devices_per_edge", "inner_m", "outer_m", "cpu_ghz",
  "cpu_spread", "seed"];

// Longer tables stay out of links; the server knows them by their checksum while it runs.
const MAX_TABLE_IN_LINK = 30_000;

export class State {
  constructor(defaults) {
    this.defaults = defaults;
    this.settings = { ...defaults };
    this.moves = new Map(); // "edge.device" or "row" → [metres east, metres north of the edge]
    this.tableInLink = "";
  }

  /** Takes what the server says it planned. */
  accept(settings) {
    const { moved, ...rest } = settings;
    this.settings = { ...this.defaults, ...rest };
    this.moves = readMoves(moved);
  }

  /** Takes a query as it stands, for the server to judge. */
  acceptQuery(query) {
    const params = new URLSearchParams(query);
    params.delete("token");
    const values = Object.fromEntries(params);
    for (const name of NUMBERS) if (name in values) values[name] = Number(values[name]);
    this.accept(values);
  }

  /** Everything that differs from the defaults. */
  query() {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(this.settings)) {
      if (value !== undefined && value !== this.defaults[name]) params.set(name, String(value));
    }
    const moved = [...this.moves].map(([key, [east, north]]) => `${key}_${east}_${north}`).join("*");
    if (moved) params.set("moved", moved);
    return params.toString();
  }

  /** The address of this very picture. */
  link() {
    const query = this.query();
    const table = this.settings.fleet && this.tableInLink ? `#table=${this.tableInLink}` : "";
    return `${location.origin}${location.pathname}${query ? `?${query}` : ""}${table}`;
  }

  async rememberTable(text) {
    this.tableInLink = "";
    if (text.length > 40 * MAX_TABLE_IN_LINK) return;
    const packed = await pack(text);
    if (packed.length <= MAX_TABLE_IN_LINK) this.tableInLink = packed;
  }

  /** The table that an address carries, or null. */
  async tableOfAddress() {
    const packed = new URLSearchParams(location.hash.slice(1)).get("table");
    if (!packed) return null;
    const text = await unpack(packed);
    this.tableInLink = packed;
    return text;
  }
}

const metres = (value) => Math.round(value * 10) / 10;

export const roundedMove = (east, north) => [metres(east), metres(north)];

function readMoves(text) {
  const moves = new Map();
  for (const part of (text ?? "").split("*")) {
    const [key, east, north] = part.split("_");
    if (north !== undefined) moves.set(key, [Number(east), Number(north)]);
  }
  return moves;
}

async function pack(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let characters = "";
  for (const byte of bytes) characters += String.fromCharCode(byte);
  return btoa(characters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

/** The number inputs and sliders of the form, showing `settings`. */
export function showSettings(settings, isTable) {
  byId("scheme").value = settings.scheme;
  for (const name of NUMBERS) {
    const [field, slider] = [byId(name), byId(`${name}-slider`)];
    if (Number(field.value) !== settings[name] || field.value === "") field.value = String(settings[name]);
    field.removeAttribute("aria-invalid");
    stretch(slider, settings[name]);
    slider.value = String(settings[name]);
    field.disabled = slider.disabled = isTable && NETWORK_ONLY.includes(name);
  }
}

/** A slider reaches as far as the number beside it. */
export function stretch(slider, value) {
  if (value > Number(slider.max)) slider.max = String(value);
  if (value < Number(slider.min)) slider.min = String(value);
}
