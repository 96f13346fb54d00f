// The state of the planner and how an address spells it: settings and moved devices in the query, a small table after #.

import { byId } from "./common.js";

export const NUMBERS = ["deadline_ms", "max_pruning", "bandwidth_mhz", "transmit_power_dbm", "num_edges",
  "devices_per_edge", "inner_m", "outer_m", "cpu_ghz", "cpu_spread", "seed"];

/** Numbers without a slider; those that may be left open are "none" then. */
export const FIELDS = ["carrier_ghz", "num_antennas", "num_streams", "power_p0_dbm", "power_alpha", "station_power_dbm",
  "csi_correlation", "csi_delay_ms", "pilots", "report_bits", "speed_m_per_s", "edge_distance_m"];
export const MAY_BE_OPEN = ["power_p0_dbm", "station_power_dbm"];
export const CHOICES = ["noise", "rate", "path_loss", "fading", "reuse", "downlink", "on_time", "mobility", "association",
  "placement", "ground"];
export const SWITCHES = ["slice_noise"];
export const TIME = "start_s";

/** Settings that a table replaces. */
export const NETWORK_ONLY = ["preset", "transmit_power_dbm", "num_edges", "devices_per_edge", "inner_m", "outer_m", "cpu_ghz",
  "cpu_spread", "seed", ...FIELDS, ...CHOICES, ...SWITCHES];

/** Fields that mean something only beside others. */
const SHOWN_WITH = {
  carrier_ghz: (settings) => settings.path_loss !== "log-distance",
  num_antennas: (settings) => settings.fading !== "none",
  num_streams: (settings) => settings.fading !== "none",
  power_alpha: (settings) => settings.power_p0_dbm !== "none",
  station_power_dbm: (settings) => settings.downlink !== "none",
  speed_m_per_s: (settings) => settings.mobility !== "none" || settings.csi_delay_ms > 0,
};

const FIRST_PRESET = "paper";

// Longer tables stay out of links; the server knows them by their checksum while it runs.
const MAX_TABLE_IN_LINK = 30_000;

export class State {
  constructor(presets) {
    this.presets = presets;
    this.settings = { ...presets[FIRST_PRESET] };
    this.moves = new Map(); // "edge.device" or "row" → [metres east, metres north of the edge]
    this.tableInLink = "";
  }

  /** What settings are unless they are changed. */
  get defaults() {
    return this.presets[this.settings.preset] ?? this.presets[FIRST_PRESET];
  }

  /** Starts anew from a preset; a table stays. */
  startFrom(preset) {
    const { fleet } = this.settings;
    this.settings = { ...this.presets[preset], ...(fleet ? { fleet } : {}) };
    this.moves.clear();
  }

  /** Takes what the server says it planned. */
  accept(settings) {
    const { moved, ...rest } = settings;
    this.settings = { ...(this.presets[rest.preset] ?? this.presets[FIRST_PRESET]), ...rest };
    this.moves = readMoves(moved);
  }

  /** Takes a query as it stands, for the server to judge. */
  acceptQuery(query) {
    const params = new URLSearchParams(query);
    params.delete("token");
    const values = Object.fromEntries(params);
    for (const name of [...NUMBERS, ...FIELDS, TIME, "reuse", "on_time"]) {
      if (name in values && values[name] !== "none") values[name] = Number(values[name]);
    }
    for (const name of SWITCHES) if (name in values) values[name] = values[name] === "true";
    this.accept(values);
  }

  /** Everything that differs from the defaults. */
  query() {
    const params = new URLSearchParams();
    if (this.settings.preset !== FIRST_PRESET) params.set("preset", this.settings.preset);
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

/** The form, showing `settings`. */
export function showSettings(settings, isTable) {
  byId("scheme").value = settings.scheme;
  byId("preset").value = settings.preset;
  for (const name of [...NUMBERS, ...FIELDS, TIME]) {
    const [field, slider] = [byId(name), byId(`${name}-slider`)];
    const value = settings[name] === "none" ? "" : String(settings[name]);
    if (field.value !== value && (field.value === "" || Number(field.value) !== settings[name])) field.value = value;
    field.removeAttribute("aria-invalid");
    field.disabled = isTable && NETWORK_ONLY.includes(name);
    if (!slider) continue;
    stretch(slider, settings[name]);
    slider.value = String(settings[name]);
    slider.disabled = field.disabled;
  }
  for (const name of CHOICES) {
    const [choice, value] = [byId(name), String(settings[name])];
    if (![...choice.options].some((option) => option.value === value)) choice.add(new Option(value, value));
    choice.value = value;
    choice.disabled = isTable && NETWORK_ONLY.includes(name);
  }
  for (const name of SWITCHES) {
    byId(name).checked = settings[name];
    byId(name).disabled = isTable && NETWORK_ONLY.includes(name);
  }
  byId("preset").disabled = isTable;
  for (const [name, isShown] of Object.entries(SHOWN_WITH)) byId(`${name}-control`).hidden = !isShown(settings) && settings[name] === defaultOf[name];
  byId("motion").hidden = isTable || settings.mobility === "none";
}

/** Values at which a hidden field changes nothing. */
const defaultOf = { carrier_ghz: 3.5, num_antennas: 1, num_streams: 1, power_alpha: 1, station_power_dbm: "none", speed_m_per_s: 0 };

/** A slider reaches as far as the number beside it. */
export function stretch(slider, value) {
  if (value > Number(slider.max)) slider.max = String(value);
  if (value < Number(slider.min)) slider.min = String(value);
}
