// Moving devices on the map: by pointer, by arrow keys, or by typing where they shall stand.

import { byId } from "./common.js";
import { holdMap, markedPlaces } from "./planner-charts.js";

const REACH_PX = 22;
const STEP_M = 5;
const FAR_STEP_M = 25;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Connects the map. `page` gives answer(), selected(), select(index) and move(index, east, north), the last in metres
 * from the cloud.
 */
export function connectMap(page) {
  const map = byId("map");
  let dragged = null;

  const axes = () => map._fullLayout;

  /** Pixels inside the plot → metres. */
  function metresAt(event) {
    const { xaxis, yaxis } = axes();
    const box = map.getBoundingClientRect();
    return [xaxis.p2d(event.clientX - box.left - xaxis._offset), yaxis.p2d(event.clientY - box.top - yaxis._offset)];
  }

  function deviceNear(event) {
    const answer = page.answer();
    if (!answer || !axes() || answer.settings.mobility !== "none") return null;
    const { xaxis, yaxis } = axes();
    const box = map.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
    const { devices } = answer;
    let [best, nearest] = [null, REACH_PX];
    for (const i of markedPlaces(answer, page.selected())) {
      const away = Math.hypot(xaxis.d2p(devices.x_m[i]) - x, yaxis.d2p(devices.y_m[i]) - y);
      if (away < nearest) [best, nearest] = [devices.index[i], away];
    }
    return best;
  }

  // Plotly listens for mouse and touch events, which follow pointer events: a hit on a device must not also pan.
  const keepFromPlotly = (event) => {
    if (dragged === null) return;
    event.stopPropagation();
    if (event.cancelable) event.preventDefault();
  };
  map.addEventListener("mousedown", keepFromPlotly, { capture: true });
  map.addEventListener("touchstart", keepFromPlotly, { capture: true, passive: false });

  map.addEventListener("pointerdown", (event) => {
    const hit = event.button === 0 ? deviceNear(event) : null;
    if (hit === null) return;
    dragged = hit;
    page.select(hit);
    map.focus({ preventScroll: true });
    map.setPointerCapture(event.pointerId);
    holdMap(true);
    event.stopPropagation();
  }, { capture: true });

  map.addEventListener("pointermove", (event) => {
    if (dragged !== null) page.move(dragged, ...metresAt(event));
  });

  const drop = () => {
    if (dragged === null) return;
    dragged = null;
    holdMap(false);
    page.settled();
  };
  map.addEventListener("pointerup", drop);
  map.addEventListener("pointercancel", drop);
  map.addEventListener("lostpointercapture", drop);

  map.addEventListener("keydown", (event) => {
    const { devices } = page.answer();
    const at = devices.index.indexOf(page.selected());
    if (event.key in ARROWS && at >= 0 && page.answer().settings.mobility === "none") {
      const step = event.shiftKey ? FAR_STEP_M : STEP_M;
      const [east, north] = ARROWS[event.key];
      page.move(devices.index[at], devices.x_m[at] + step * east, devices.y_m[at] + step * north);
    } else if (event.key === "PageDown" || event.key === "PageUp") {
      const next = at + (event.key === "PageDown" ? 1 : -1);
      page.select(devices.index[(next + devices.index.length) % devices.index.length]);
    } else {
      return;
    }
    event.preventDefault();
  });
}
