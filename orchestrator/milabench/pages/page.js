"use strict";
(() => {
  const root = document.documentElement;

  // The theme is the system's until the reader says otherwise; a page from a disk may have nowhere to remember it.
  const theme = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const tellTheme = () => { theme.textContent = isDark() ? "Light page" : "Dark page"; };
  try { const kept = localStorage.getItem("milabench-theme"); if (kept) root.dataset.theme = kept; } catch { /* not kept */ }
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("milabench-theme", root.dataset.theme); } catch { /* not kept */ }
    tellTheme();
  });
  prefersDark.addEventListener("change", tellTheme);
  tellTheme();

  const folds = [...document.querySelectorAll("details")];
  const all = document.getElementById("all");
  if (folds.length) {
    all.hidden = false;
    const tellAll = () => { all.textContent = folds.every((one) => one.open) ? "Close all details" : "Open all details"; };
    all.addEventListener("click", () => {
      const open = !folds.every((one) => one.open);
      for (const one of folds) one.open = open;
      tellAll();
    });
    for (const one of folds) one.addEventListener("toggle", tellAll);
  }
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && target.closest("details");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  let closed = [];
  addEventListener("beforeprint", () => { closed = folds.filter((one) => !one.open); for (const one of closed) one.open = true; });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

  const valueOf = (cell, numeric) => {
    const shown = cell.textContent.trim();
    if (!numeric) return shown;
    return Number.parseFloat(shown.replace(/^[^0-9+.\-]+/, ""));
  };
  const isNothing = (value) => value === "" || Number.isNaN(value);
  const sorted = (rows, place, numeric, sign) => rows
    .map((row, at) => ({ row, at, value: valueOf(row.cells[place], numeric) }))
    .sort((one, other) => {
      // What has no value stays last in both directions; equal ones stay in their order.
      const rest = isNothing(one.value) - isNothing(other.value);
      if (rest) return rest;
      const order = typeof one.value === "number" && typeof other.value === "number"
        ? one.value - other.value
        : String(one.value).localeCompare(String(other.value), "en", { numeric: true });
      return (Number.isNaN(order) ? 0 : sign * order) || one.at - other.at;
    })
    .map((each) => each.row);

  for (const table of document.querySelectorAll("table[data-sort]")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const numeric = head.classList.contains("num");
        body.append(...sorted([...body.rows], place, numeric, up ? 1 : -1));
      });
    });
  }

  for (const table of document.querySelectorAll("table[data-filter]")) {
    const rows = [...table.tBodies[0].rows];
    const name = table.caption.textContent;
    const bar = document.createElement("div");
    bar.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "filter rows";
    input.setAttribute("aria-label", `filter rows of ${name}`);
    const told = document.createElement("output");
    bar.append(input);
    const states = [...new Set(rows.map((row) => row.dataset.state).filter(Boolean))].sort();
    const choice = document.createElement("select");
    choice.setAttribute("aria-label", `which rows of ${name}`);
    choice.append(new Option("all rows", ""), ...states.map((state) => new Option(`only ${state}`, state)));
    if (states.length > 1) bar.append(choice);
    bar.append(told);
    table.parentElement.before(bar);
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !(words.every((word) => text.includes(word)) && (!choice.value || row.dataset.state === choice.value));
        shown += row.hidden ? 0 : 1;
      }
      told.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
    };
    input.addEventListener("input", apply);
    choice.addEventListener("change", apply);
    apply();
  }
})();
