// What the theme leaves out for readers with a keyboard or a screen reader: names of its regions, tables that take the focus.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Code ${i + 1}`));
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((box) => { box.tabIndex = 0; });
});
