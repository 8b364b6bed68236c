// What a report does besides being read: points of charts show their label, go through by keys and open a card of all
// measures, buttons copy commands, and settings are explored by any two measures.
// Names come from data: they are put into the page as text nodes or attributes, never as HTML.
(() => {
  "use strict";
  const find = (name) => document.getElementById(name);
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const show = (value) =>
    value === null ? "–" : value.toFixed(Math.abs(value) >= 1000 ? 1 : 3).replace(/^-(?=0\.0*$)/, "").replace("-", "−");
  const showInterval = ({ low, high }, id) => (low[id] === null || high[id] === null ? "" : `${show(low[id])} – ${show(high[id])}`);

  // Points of all charts.

  const tip = find("tip");
  const hideTip = () => (tip.hidden = true);
  const findPoint = (event) => event.target.closest?.(".chart g[aria-label]");
  const listPoints = (point) => [...point.closest(".chart").querySelectorAll("[data-id]")];
  const centre = (point) => {
    const { x, y, width, height } = point.querySelector(".hit").getBoundingClientRect();
    return { x: x + width / 2, y: y + height / 2 };
  };
  const showTip = (point) => {
    const lines = point.getAttribute("aria-label").split("; ");
    tip.replaceChildren(...lines.map((line, number) => make(number ? "div" : "b", { textContent: line })));
    tip.hidden = false;
    const { x, y } = centre(point);
    tip.style.left = `${scrollX + Math.max(4, Math.min(x + 16, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
    // Above the point where there is no room below it.
    tip.style.top = `${scrollY + y + (y + 16 + tip.offsetHeight <= innerHeight ? 16 : -16 - tip.offsetHeight)}px`;
  };
  const along = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1], Home: ["x", -Infinity], End: ["x", Infinity] };
  const move = (point, [axis, step]) => {
    const points = listPoints(point).map((each) => [centre(each)[axis], each]).sort(([a], [b]) => a - b).map(([, each]) => each);
    points[Math.max(0, Math.min(points.length - 1, points.indexOf(point) + step))].focus();
  };
  document.addEventListener("mouseover", (event) => (findPoint(event) ? showTip(findPoint(event)) : hideTip()));
  document.addEventListener("focusout", hideTip);
  document.addEventListener("focusin", (event) => {
    const point = findPoint(event);
    if (!point) return;
    // One stop for Tab; arrows go on from there.
    for (const each of listPoints(point)) each.setAttribute("tabindex", each === point ? "0" : "-1");
    showTip(point);
  });
  document.addEventListener("keydown", (event) => {
    const point = findPoint(event);
    if (event.key === "Escape") card.contains(document.activeElement) ? closeCard() : hideTip();
    else if (point && event.key in along) move(point, along[event.key]);
    else if (point && (event.key === "Enter" || event.key === " ")) openCard(point);
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", async (event) => {
    const point = findPoint(event);
    if (point?.dataset.id) openCard(point);
    const command = event.target.dataset?.copy;
    if (!command) return;
    const done = navigator.clipboard?.writeText(command) ?? Promise.reject();
    find("copied").textContent = await done.then(() => `Copied: ${command}`, () => `To be copied: ${command}`);
  });

  // What is explored, unpacked when it is first asked for.

  const unpack = async () => {
    const packed = Uint8Array.from(atob(find("data").textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  };
  let data;
  const load = async () => (data ??= await unpack());

  // A chart: axes have low, high, title and, where less is better, down. Places are in percent, as marks take them.

  const listTicks = ({ low, high }) => {
    const rough = (high - low) / 5;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * ten).find((each) => each >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, each) => Number(((first + each) * step).toPrecision(12)));
  };
  const drawChart = (x, y, height, ...marks) => {
    const share = ({ low, high, down }, value) => 100 * Math.max(0, Math.min(1, down ? (high - value) / (high - low) : (value - low) / (high - low)));
    const [across, up] = [(value) => share(x, value), (value) => 100 - share(y, value)];
    const grid = [
      ...listTicks(x).map((tick) => [draw("line", { class: "grid", x1: `${across(tick)}%`, x2: `${across(tick)}%`, y2: "100%" }), draw("text", { x: `${across(tick)}%`, y: "100%", dy: 18, "text-anchor": "middle" }, String(tick))]),
      ...listTicks(y).map((tick) => [draw("line", { class: "grid", y1: `${up(tick)}%`, y2: `${up(tick)}%`, x2: "100%" }), draw("text", { x: -8, y: `${up(tick)}%`, dy: 4, "text-anchor": "end" }, String(tick))]),
    ];
    return [
      make("p", { className: "axis", textContent: y.title }),
      draw("svg", { width: "100%", height }, ...grid.flat(), ...marks.flatMap((mark) => mark(across, up))),
      make("p", { className: "axis across", textContent: x.title }),
    ];
  };
  const drawBars = ({ x, y, xLow, xHigh, yLow, yHigh }, across, up) => [
    ...(xLow == null || xHigh == null ? [] : [draw("line", { class: "bar", x1: `${across(xLow)}%`, x2: `${across(xHigh)}%`, y1: `${up(y)}%`, y2: `${up(y)}%` })]),
    ...(yLow == null || yHigh == null ? [] : [draw("line", { class: "bar", x1: `${across(x)}%`, x2: `${across(x)}%`, y1: `${up(yLow)}%`, y2: `${up(yHigh)}%` })]),
  ];
  const drawPoint = (point, attributes) => (across, up) =>
    draw(
      "g",
      { style: `--colour: var(--level-${point.colour})`, "aria-label": point.label, ...attributes },
      ...drawBars(point, across, up),
      draw("svg", { x: `${across(point.x)}%`, y: `${up(point.y)}%`, overflow: "visible" }, draw("circle", { class: "hit", r: 12 }), draw("path", { class: "mark", d: data.shapes[point.shape % data.shapes.length] })),
    );
  const drawSwatch = (shape, colour) =>
    draw("svg", { viewBox: "-1.2 -1.2 2.4 2.4", "aria-hidden": true, class: "glyph" }, draw("path", { d: data.shapes[shape % data.shapes.length], style: `fill: var(--level-${colour})` }));

  // The card of a setting, below the chart in which it was opened.

  const card = find("card");
  let opener;
  const nameSetting = ({ method, setting }) => [method, ...setting].join(", ");
  const cell = (measure, id) => {
    if (!measure) return make("td");
    if (measure.value[id] === null) return make("td", { className: "muted", textContent: "not estimable" });
    const rows = Array.isArray(measure.n) ? measure.n[id] : measure.n;
    return make(
      "td",
      {},
      make("span", { className: "value", textContent: show(measure.value[id]) }),
      make("span", { className: "range", textContent: showInterval(measure, id) }),
      make("span", { className: "small", textContent: rows === null ? "" : `n = ${rows}` }),
    );
  };
  const tabulate = (heads, rows) =>
    make(
      "div",
      { className: "scroll", tabIndex: 0 },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { textContent: head })))),
        make("tbody", {}, ...rows.map(([head, ...cells]) => make("tr", {}, make("th", { textContent: head }), ...cells))),
      ),
    );
  // Measures of one attribute: those of its levels side by side, then those between the levels.
  const tabulateAttribute = (attribute, id) => {
    const own = data.measures.filter((measure) => measure.attribute === attribute);
    const of = (levels) => {
      const names = [...new Set(own.filter((measure) => levels.includes(measure.level)).map((measure) => measure.measure))];
      const pick = (name, level) => own.find((measure) => measure.measure === name && measure.level === level);
      const heads = levels.map((level) => level || "Value, 95% interval, rows");
      return names.length ? [tabulate(["Measure", ...heads], names.map((name) => [name, ...levels.map((level) => cell(pick(name, level), id))]))] : [];
    };
    return [...of([...new Set(own.map((measure) => measure.level).filter(Boolean))]), ...of([""])];
  };
  // Scores of the levels of an attribute: shares of its rows in equal bins, and positives by tenths.
  const drawScores = (attribute, id) => {
    const levels = data.scores.filter((group) => group.attribute === attribute && group.share[id]);
    if (levels.length === 0) return [];
    const keys = levels.map((level, number) => make("span", {}, drawSwatch(number, number), ` ${level.level || "all rows"} (n = ${level.n[id]})`));
    const percent = (title) => ({ low: 0, high: 1, title });
    const most = Math.max(...levels.flatMap((level) => level.share[id])) / 1000;
    // Lines are drawn in percent of the chart, and as wide whatever its size.
    const trace = (colour, points) => (across, up) =>
      draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", width: "100%", height: "100%" }, draw("polyline", { points: points.map(([x, y]) => `${across(x)},${up(y)}`).join(" "), style: `stroke: ${colour}` }));
    const steps = levels.map((level, number) => {
      const bins = level.share[id];
      return trace(`var(--level-${number})`, bins.flatMap((part, bin) => [[bin / bins.length, part / 1000], [(bin + 1) / bins.length, part / 1000]]));
    });
    const tenths = levels.flatMap((level, number) =>
      level.calibration[id].map(([score, positive, low, high]) => {
        const label = `${level.level || "all rows"}; Mean score: ${score}%; Positives: ${positive}% (${low}% – ${high}%)`;
        return drawPoint({ x: score / 100, y: positive / 100, yLow: low / 100, yHigh: high / 100, shape: number, colour: number, label }, { role: "img" });
      }),
    );
    const charts = [
      ["distribution of scores", percent("Score"), { low: 0, high: 1.05 * most, title: "Share of the group" }, steps],
      ["calibration", percent("Mean score of a tenth"), percent("Share of positives"), [trace("var(--faint)", [[0, 0], [1, 1]]), ...tenths]],
    ].map(([what, x, y, marks]) => {
      const chart = make("div", { className: "chart" }, ...drawChart(x, y, 200, ...marks));
      chart.setAttribute("role", "group");
      chart.setAttribute("aria-label", `${attribute || "All rows"}: ${what}`);
      return chart;
    });
    const note = `before a rule by group decides, on test; no tenth with fewer than ${data.minimum} rows`;
    return [make("div", { className: "pair" }, make("p", { className: "keys" }, ...keys, note), ...charts)];
  };
  const openCard = async (point) => {
    await load();
    opener = point;
    const id = Number(point.dataset.id);
    const setting = data.settings[id];
    const close = make("button", { type: "button", textContent: "Close", onclick: () => closeCard() });
    const labels = setting.frontiers.map((name) => data.measures.find((measure) => measure.name === name)?.label ?? name);
    const facts = [
      labels.length ? `on the frontier of ${labels.join("; ")}` : "on no frontier",
      setting.asks ? "needs the group at decision time" : "does not need the group at decision time",
      setting.individual ? "trained to be individually fair" : "not trained to be individually fair",
      setting.splits === 1 ? "1 split" : `mean of ${setting.splits} splits`,
    ];
    const attributes = [...new Set(data.measures.map((measure) => measure.attribute))].sort();
    card.replaceChildren(
      make("h3", {}, setting.method, " ", ...setting.setting.map((word) => make("span", { className: "chip", textContent: word })), close),
      make("p", { className: "small wrap", textContent: facts.join(" · ") }),
      ...(setting.command ? [make("p", { className: "small", textContent: "To get this model:" }), make("pre", { tabIndex: 0, textContent: setting.command })] : []),
      ...attributes.map((attribute) =>
        make("details", { open: attribute === attributes[0] }, make("summary", { textContent: attribute || "All rows" }), ...drawScores(attribute, id), ...tabulateAttribute(attribute, id)),
      ),
    );
    card.setAttribute("aria-label", `Measures of ${nameSetting(setting)}`);
    card.hidden = false;
    point.closest(".chart").after(card);
    card.focus();
    card.scrollIntoView({ block: "nearest" });
  };
  const closeCard = () => {
    card.hidden = true;
    opener?.focus();
  };

  // The explorer: any two measures.

  const MENU = 8;
  const hidden = new Set();
  let measures;
  const listShown = () =>
    data.settings.map((setting, id) => ({ ...setting, id })).filter(
      ({ method, asks }) => !hidden.has(method) && ["", asks ? "yes" : "no"].includes(find("asks").value),
    );
  const HINTS = { higher: " (higher is better)", lower: " (lower is better)", zero: " (0 is best)", none: "" };
  // Better is up and to the right.
  const makeAxis = ({ label, better }, values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = 0.09 * (high - low || 0.1);
    return { low: low - margin, high: high + margin, down: better === "lower", title: label + HINTS[better] };
  };
  const explore = () => {
    hideTip();
    const [x, y] = ["x", "y"].map((name) => measures[find(name).value]);
    const look = (method) => data.methods.find((each) => each.name === method);
    const line = (measure, id) => `${measure.label}: ${show(measure.value[id])} ${showInterval(measure, id) && `(${showInterval(measure, id)})`}`;
    const points = listShown()
      .filter(({ id }) => x.value[id] !== null && y.value[id] !== null)
      .map(({ id, method, setting, asks, frontiers }) => ({
        ...look(method),
        id,
        chosen: frontiers.length > 0,
        x: x.value[id],
        y: y.value[id],
        ...(find("intervals").checked && { xLow: x.low[id], xHigh: x.high[id], yLow: y.low[id], yHigh: y.high[id] }),
        label: [nameSetting({ method, setting }), line(x, id), line(y, id), asks ? "needs the group at decision time" : "does not need the group"].join("; "),
      }))
      // What was chosen is drawn above the rest.
      .sort((a, b) => a.chosen - b.chosen);
    find("count").textContent = `${points.length} of ${data.settings.length} settings shown`;
    if (card.previousElementSibling === find("chart")) card.hidden = true;
    if (points.length === 0) {
      find("chart").replaceChildren(make("p", { className: "muted", textContent: "No setting has both measures and fits the filters." }));
      return;
    }
    const [across, up] = [makeAxis(x, points.map((point) => point.x)), makeAxis(y, points.map((point) => point.y))];
    const marks = points.map((point, number) =>
      drawPoint(point, { role: "button", "data-id": point.id, tabindex: number === points.length - 1 ? 0 : -1, class: point.chosen ? "chosen" : "plain" }),
    );
    find("chart").replaceChildren(...drawChart(across, up, 400, ...marks));
  };
  // The current measure, and the first ones with the words searched for.
  const fillMenus = () => {
    const words = find("search").value.toLowerCase();
    const hits = measures.map((_, number) => number).filter((number) => measures[number].label.toLowerCase().includes(words));
    for (const menu of [find("x"), find("y")]) {
      const current = menu.value;
      const numbers = [...new Set([...(current === "" ? [] : [Number(current)]), ...hits])].slice(0, MENU);
      menu.replaceChildren(...numbers.map((number) => make("option", { value: number, textContent: measures[number].label })));
      menu.value = current;
    }
    find("found").textContent = `${hits.length} of ${measures.length} measures`;
  };
  const start = async () => {
    await load();
    const traded = [data.accuracy, ...data.fairness];
    const rank = ({ name, level }) => (traded.includes(name) ? traded.indexOf(name) : traded.length + (level !== ""));
    measures = data.measures.filter((measure) => measure.value.some((value) => value !== null)).sort((a, b) => rank(a) - rank(b));
    if (measures.length === 0) return;
    fillMenus();
    // Two measures that differ, even where no gap is estimable.
    find("x").value = Math.min(1, measures.length - 1);
    find("y").value = 0;
    const boxes = data.methods.map(({ name, shape, colour }) => {
      const onchange = (event) => {
        hidden[event.target.checked ? "delete" : "add"](name);
        explore();
      };
      return make("label", { className: "check" }, make("input", { type: "checkbox", checked: true, onchange }), drawSwatch(shape, colour), name);
    });
    find("methods").append(...boxes);
    find("search").addEventListener("input", fillMenus);
    for (const name of ["x", "y", "asks", "intervals"]) find(name)?.addEventListener("change", explore);
    find("controls").hidden = false;
    explore();
  };
  const details = find("explore");
  if (details.open) start();
  else details.addEventListener("toggle", start, { once: true });
})();
