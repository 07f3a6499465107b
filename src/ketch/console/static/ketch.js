// What the pages do in a browser beside htmx: the chart, keys, copying, typed confirmations. Without it they still work.
(() => {
  "use strict";
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // -- numbers
  const count = (value) => value >= 100 || value === 0 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
  const bytes = (value) => {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
  };
  const time = (value) => value < 0.01 ? `${(value * 1000).toFixed(2)} ms` : `${Math.round(value * 1000)} ms`;
  const shown = {
    rate: (value) => `${count(value)} / s`,
    bytes: (value) => `${bytes(value)} / s`,
    count: (value) => Math.round(value).toLocaleString("en"),
    time: (value) => value === null ? "no answer" : time(value),
    latency: (value) => value === null ? "–" : time(value),
  };

  // -- the overview
  const chartOf = (box) => {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = () => ({ stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" });
    const rate = (_, values) => values.map((value) => bytes(value));
    const line = (label, name) => ({ label, stroke: colour(name), width: 1.5, points: { show: false }, value: (_, value) => value === null ? "–" : `${bytes(value)} / s` });
    const options = {
      width: box.clientWidth, height: 180,
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1024)] } },
      axes: [axis(), { ...axis(), values: rate, size: 66, incrs: Array.from({ length: 40 }, (_, n) => 2 ** n) }],
      series: [{ value: (_, value) => value === null ? "–" : new Date(value * 1000).toLocaleTimeString() }, line("in", "--accent"), line("out", "--second")],
    };
    return new uPlot(options, [[], [], []], box);
  };

  const live = one("[data-live]");
  if (live && window.EventSource) {
    const box = one("#chart");
    let samples = JSON.parse(box.dataset.samples);
    let chart = chartOf(box);
    const draw = () => chart.setData([samples.map((s) => s.at), samples.map((s) => s.bytes_in), samples.map((s) => s.bytes_out)]);
    const tell = (sample) => all("[data-field]", live).forEach((cell) => { cell.textContent = shown[cell.dataset.as](sample[cell.dataset.field]); });
    draw();
    if (samples.length) tell(samples[samples.length - 1]);
    const source = new EventSource(live.dataset.live);
    source.addEventListener("sample", (event) => {
      const sample = JSON.parse(event.data);
      samples = [...samples, sample].slice(-300);
      tell(sample);
      draw();
      one("#live-state").textContent = "live";
    });
    source.addEventListener("error", () => { one("#live-state").textContent = "not live: the broker does not answer"; });
    const redraw = () => { chart.destroy(); chart = chartOf(box); draw(); };
    window.addEventListener("resize", () => chart.setSize({ width: box.clientWidth, height: 180 }));
    document.addEventListener("ketch:theme", redraw);
    window.addEventListener("pagehide", () => source.close());
  }

  // -- lists that are read again, while somebody looks
  setInterval(() => {
    if (document.visibilityState !== "visible" || document.activeElement?.closest?.("[data-refresh]")) return;
    all("[data-refresh]").forEach((list) => list.dispatchEvent(new Event("refresh")));
  }, 3000);

  // -- the live tail
  const tail = one("#tail");
  if (tail) {
    const pause = one("#pause");
    pause.addEventListener("click", () => {
      const paused = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", paused);
      pause.textContent = paused ? "Go on" : "Pause";
    });
    const state = (text) => () => { one("#tail-state").textContent = text; };
    document.body.addEventListener("htmx:sseOpen", state("live"));
    document.body.addEventListener("htmx:sseError", state("not live: the broker does not answer"));
    document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
      if (pause.getAttribute("aria-pressed") === "true") event.preventDefault();
    });
    document.body.addEventListener("htmx:sseMessage", () => {
      while (tail.rows.length > Number(tail.dataset.most)) tail.deleteRow(-1);
    });
  }

  // -- typed confirmations: the button waits for the name
  all("[data-confirm]").forEach((input) => {
    const button = one("button:not([type=button])", input.form);
    const check = () => { button.disabled = input.value !== input.dataset.confirm; };
    input.addEventListener("input", check);
    check();
  });

  // -- copying
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(one("code", button.parentElement));
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // -- light and dark
  one("#theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("ketch-theme", root.dataset.theme); } catch { /* kept for this page alone */ }
    document.dispatchEvent(new Event("ketch:theme"));
  });

  // -- keys: / to search, g and the letter of a page (data-key) to go there
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "/") {
      const search = one("#q") ?? one("#key");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "g" && Date.now() - going > 1000) {
      going = Date.now();
    } else if (Date.now() - going < 1000) {
      const page = all("nav [data-key]").filter((link) => link.dataset.key === event.key).at(0);
      going = 0;
      if (page) page.click();
    }
  });
})();
