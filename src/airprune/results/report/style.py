"""The looks of a page: quiet, legible from 360 px up, light and dark, and on paper."""

CSS = """\
:root {
  color-scheme: light dark;
  --ground: #ffffff; --text: #1c2128; --quiet: #57606a; --line: #d5dbe1; --box: #f5f7f9; --link: #0a58a8;
  --good: #0f5132; --good-box: #d6f2e0; --fair: #664500; --fair-box: #fdeec4;
  --bad: #842029; --bad-box: #fadadd; --open: #41464b; --open-box: #e4e7ea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181d; --text: #e3e7eb; --quiet: #a0a9b3; --line: #353c45; --box: #1d232a; --link: #79b8ff;
    --good: #b5efcb; --good-box: #113d27; --fair: #fbdf95; --fair-box: #4a3500;
    --bad: #ffc4c9; --bad-box: #561a20; --open: #d3d8dd; --open-box: #383f47;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1240px; padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { margin: 0 0 .5rem; font-size: 1.8rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .8rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
h3 { margin: 1.6rem 0 .6rem; font-size: 1rem; }
p { margin: .6rem 0; max-width: 75ch; overflow-wrap: anywhere; }
a { color: var(--link); }
.kind { margin: 0; color: var(--quiet); font-size: .85rem; letter-spacing: .04em; text-transform: uppercase; }
.note, figcaption, footer { color: var(--quiet); font-size: .875rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 1rem 0 0; padding: 0; list-style: none; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .7rem; margin: 1rem 0; }
.tiles div { padding: .7rem .8rem; border: 1px solid var(--line); border-radius: 8px; background: var(--box); }
dt { color: var(--quiet); font-size: .8rem; line-height: 1.3; }
dd { margin: .15rem 0 0; font-size: 1.15rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.badge {
  display: inline-block; padding: .1rem .55rem; border-radius: 99px; font-size: .85rem; font-weight: 600;
  white-space: nowrap;
}
.good { color: var(--good); background: var(--good-box); }
.fair { color: var(--fair); background: var(--fair-box); }
.bad { color: var(--bad); background: var(--bad-box); }
.open { color: var(--open); background: var(--open-box); }
.scroll { overflow-x: auto; margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; text-align: left; vertical-align: top; }
thead th { background: var(--box); font-weight: 600; vertical-align: bottom; }
tbody tr + tr td, thead + tbody td { border-top: 1px solid var(--line); }
.number { text-align: right; }
td.number { white-space: nowrap; }
.estimates td:first-child { min-width: 8rem; overflow-wrap: anywhere; }
.claims { min-width: 860px; }
.claims td:nth-child(2), .claims td:nth-child(5) { min-width: 15rem; }
.claims table { font-size: .85rem; }
.claims .scroll { margin: .4rem 0 0; }
.league { font-size: .85rem; }
.standings th:nth-child(2), .standings td:nth-child(2), .conduct th:first-child, .conduct td:first-child {
  position: sticky; left: 0; background: var(--ground); font-weight: 600; min-width: 5.5rem;
}
@media (min-width: 701px) { .standings td:nth-child(2), .conduct td:first-child { min-width: 9.5rem; } }
.league thead th:nth-child(n) { background: var(--box); min-width: 4.6rem; }
.standings thead th:first-child { min-width: 0; }
.origin {
  display: block; max-width: 11rem; color: var(--quiet); font-size: .75rem; font-weight: 400; line-height: 1.25;
}
.notes { max-width: 80ch; padding-left: 1.2rem; color: var(--quiet); font-size: .875rem; }
details { margin: .6rem 0; }
td details { margin: .3rem 0 0; }
summary { cursor: pointer; color: var(--link); font-size: .9rem; }
pre {
  max-height: 26rem; margin: .8rem 0; padding: .8rem 1rem; overflow: auto; border: 1px solid var(--line);
  border-radius: 8px; background: var(--box); font: .85rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
}
pre.command { max-height: none; white-space: pre-wrap; overflow-wrap: anywhere; }
.grid {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1rem; align-items: start;
}
figure { margin: 0; padding: .6rem; border: 1px solid var(--line); border-radius: 8px; background: var(--box); }
figure.wide { margin: 1rem 0; }
.picture { overflow-x: auto; border-radius: 5px; background: #ffffff; }
.picture img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.wide .picture img { min-width: min(100%, 640px); }
figcaption { padding: .5rem .2rem 0; }
.files { display: block; font-size: .8rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 700px) {
  h1 { font-size: 1.45rem; }
  .wide .picture img { min-width: 640px; }
  .claims { min-width: 0; }
  .claims > thead { display: none; }
  .claims, .claims > tbody, .claims > tbody > tr, .claims > tbody > tr > td { display: block; }
  .claims > tbody > tr > td { border: 0; padding: .15rem .7rem; }
  .claims > tbody > tr { padding: .5rem 0; }
  .claims > tbody > tr + tr { border-top: 1px solid var(--line); }
  .claims > tbody > tr > td:first-child { color: var(--quiet); }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  pre { max-height: none; white-space: pre-wrap; }
  .scroll, .picture { overflow: visible; }
  .estimates td:first-child { min-width: 8rem; overflow-wrap: anywhere; }
.claims { min-width: 0; }
  figure, .tiles div, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
