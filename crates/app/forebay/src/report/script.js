"use strict";
(function () {
  const root = document.documentElement;
  const tip = document.getElementById("tip");

  function show(text, event) {
    tip.textContent = text;
    tip.hidden = false;
    const room = 14;
    const x = Math.min(event.clientX + room, window.innerWidth - tip.offsetWidth - room);
    const below = event.clientY + room;
    const fits = below + tip.offsetHeight < window.innerHeight;
    tip.style.left = Math.max(room, x) + "px";
    tip.style.top = (fits ? below : event.clientY - tip.offsetHeight - room) + "px";
  }
  function hide() { tip.hidden = true; }

  // The browser's own tooltips are slow; the script shows their text without delay.
  for (const mark of document.querySelectorAll("svg.chart [fill] > title")) {
    const text = mark.textContent, shape = mark.parentNode;
    shape.setAttribute("aria-label", text);
    mark.remove();
    shape.addEventListener("mousemove", function (event) { show(text, event); });
    shape.addEventListener("mouseleave", hide);
  }

  function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let i = 0;
    while (n >= 1024 && i + 1 < units.length) { n /= 1024; i += 1; }
    return (i === 0 ? n : n.toPrecision(3)) + " " + units[i];
  }

  for (const svg of document.querySelectorAll("svg.heat")) {
    const data = JSON.parse(svg.parentNode.querySelector("script").textContent);
    const box = svg.viewBox.baseVal;
    svg.querySelector("title").remove();
    svg.addEventListener("mousemove", function (event) {
      const area = svg.getBoundingClientRect();
      const scale = box.width / area.width;
      const to = Math.floor(((event.clientX - area.left) * scale - data.x) / data.cell);
      const from = Math.floor(((event.clientY - area.top) * scale - data.y) / data.cell);
      const row = data.bytes[from];
      if (!row || row[to] === undefined) { hide(); return; }
      const where = from === to ? "inside group " + from : "group " + from + " to group " + to;
      show(where + ": " + bytes(row[to]), event);
    });
    svg.addEventListener("mouseleave", hide);
  }

  function key(cell) {
    return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
  }
  function sort(table, column, heading) {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) { other.removeAttribute("aria-sort"); }
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort(function (a, b) {
      const x = key(a.cells[column]), y = key(b.cells[column]);
      const order = x < y ? -1 : x > y ? 1 : 0;
      return down ? -order : order;
    });
    for (const row of rows) { table.tBodies[0].append(row); }
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    table.classList.add("ready");
    Array.from(table.tHead.rows[0].cells).forEach(function (heading, column) {
      heading.tabIndex = 0;
      heading.addEventListener("click", function () { sort(table, column, heading); });
      heading.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { sort(table, column, heading); }
      });
    });
  }
  root.dataset.ready = "yes";
})();
