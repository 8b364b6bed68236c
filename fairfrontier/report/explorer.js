// What the first screen does: points of its charts show their label and are gone through by keys, buttons copy commands.
(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const hideTip = () => (tip.hidden = true);
  const centre = (point) => {
    const { x, y, width, height } = (point.querySelector(".hit") ?? point).getBoundingClientRect();
    return { x: x + width / 2, y: y + height / 2 };
  };
  const showTip = (point) => {
    const lines = point.getAttribute("aria-label").split("; ");
    tip.replaceChildren(...lines.map((line, number) => Object.assign(document.createElement(number ? "div" : "b"), { textContent: line })));
    tip.hidden = false;
    const { x, y } = centre(point);
    tip.style.left = `${scrollX + Math.max(4, Math.min(x + 16, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
    // Above the point where there is no room below it.
    tip.style.top = `${scrollY + y + (y + 16 + tip.offsetHeight <= innerHeight ? 16 : -16 - tip.offsetHeight)}px`;
  };
  const along = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1], Home: ["x", -Infinity], End: ["x", Infinity] };
  for (const chart of document.querySelectorAll(".plot")) {
    const points = [...chart.querySelectorAll("[data-id]")];
    const find = (event) => event.target.closest("[data-id]");
    chart.addEventListener("mouseover", (event) => (find(event) ? showTip(find(event)) : hideTip()));
    chart.addEventListener("mouseleave", hideTip);
    chart.addEventListener("focusin", (event) => {
      for (const point of points) point.setAttribute("tabindex", point === find(event) ? "0" : "-1");
      showTip(find(event));
    });
    chart.addEventListener("focusout", hideTip);
    chart.addEventListener("keydown", (event) => {
      if (event.key in along) {
        const [axis, step] = along[event.key];
        const sorted = points.map((point) => [centre(point)[axis], point]).sort(([a], [b]) => a - b).map(([, point]) => point);
        sorted[Math.max(0, Math.min(points.length - 1, sorted.indexOf(find(event)) + step))].focus();
      } else if (event.key === "Escape") hideTip();
      else return;
      event.preventDefault();
    });
  }
  const copied = document.getElementById("copied");
  document.addEventListener("click", async (event) => {
    const command = event.target.dataset?.copy;
    if (!command) return;
    copied.textContent = await navigator.clipboard.writeText(command).then(() => `Copied: ${command}`, () => `To be copied: ${command}`);
  });
})();

// The explorer: charts, filters and cards of a study's settings.
// Names come from data: they are put into the page as text nodes, attributes or fields of Vega-Lite's data, never as
// HTML, expressions or names of fields.
(async () => {
  "use strict";
  const find = (name) => document.getElementById(`explore-${name}`);
  const unpack = (name) => {
    const packed = Uint8Array.from(atob(find(name).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")));
  };
  const data = await unpack("data").json();
  const measures = data.measures.filter((measure) => measure.value.some((value) => value !== null));
  const position = (name) => measures.findIndex((measure) => measure.name === name);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const hidden = new Set();
  let x, y, opened;

  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const show = (value) => (value === null ? "–" : value.toFixed(3).replace(/^-(?=0\.0*$)/, "").replace("-", "−"));
  const showInterval = (measure, id) =>
    measure.low[id] === null || measure.high[id] === null ? "" : `${show(measure.low[id])} – ${show(measure.high[id])}`;
  const count = (measure, id) => (Array.isArray(measure.n) ? measure.n[id] : measure.n);
  const look = (method) => data.methods.find((each) => each.name === method);
  const paint = (method) => look(method)[dark.matches ? "dark" : "colour"];

  // Filters.

  const matches = (choice, value) => choice === "" || (choice === "yes") === value;
  const listShown = () =>
    data.settings.map((_, id) => id).filter((id) => {
      const setting = data.settings[id];
      return (
        !hidden.has(setting.method) &&
        matches(find("asks").value, setting.asks) &&
        matches(find("individual").value, setting.individual)
      );
    });
  const isPair = () => [x.name, y.name].includes(data.accuracy) && data.fairness.some((name) => [x.name, y.name].includes(name));
  const isChosen = (id) => {
    const { frontiers } = data.settings[id];
    return isPair() ? frontiers.includes(x.name) || frontiers.includes(y.name) : frontiers.length > 0;
  };

  // Charts. Colours of axes and text are the page's, by its style sheet.

  const CONFIG = {
    background: null,
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { labelFontSize: 12, titleFontSize: 13, titleFontWeight: 600, titleLimit: 460, labelLimit: 150, titlePadding: 10 },
  };
  const embed = async (element, spec) => {
    // Expressions are interpreted, since the page's policy forbids to compile them.
    const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: false };
    const { view, finalize } = await vegaEmbed(element, { config: CONFIG, ...spec }, options);
    // The chart that was there before would go on to follow the window's size.
    element.finalize?.();
    element.finalize = finalize;
    listen(view);
    mark();
  };
  const scaleMethods = (key) => ({
    domain: data.methods.map((method) => method.name),
    range: data.methods.map((method) => (key === "shape" ? method.shape : paint(method.name))),
  });
  const titleAxis = (measure) =>
    measure.label + { higher: " (higher is better)", lower: " (lower is better)", zero: " (0 is best)", none: "" }[measure.better];
  const fitDomain = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = 0.09 * (high - low || 0.1);
    return [low - margin, high + margin];
  };
  // Better is up and to the right.
  const scale = (measure, values) => ({ domain: fitDomain(values), nice: false, zero: false, reverse: measure.better === "lower" });

  // The chosen points that no other one beats, from the best of one measure to the best of the other; none where 0 is
  // best, which has a worse side on either hand.
  const findLine = (points) => {
    if (!isPair() || [x, y].some((measure) => measure.better === "zero")) return [];
    const sign = (measure) => (measure.better === "lower" ? -1 : 1);
    const [across, up] = [sign(x), sign(y)];
    let best = -Infinity;
    return points
      .filter((point) => point.chosen)
      .sort((a, b) => across * (b.x - a.x) || up * (b.y - a.y))
      .filter((point) => up * point.y > best && ((best = up * point.y), true));
  };

  const listPublished = () =>
    (find("published")?.checked ? data.published : [])
      .filter((row) => !hidden.has(row.method))
      .flatMap((row) =>
        ["published", "ours"].map((side) => ({
          side,
          method: row.method,
          x: row[side][x.name] ?? null,
          y: row[side][y.name] ?? null,
          label: `${row.method}, ${side === "ours" ? "ours under the paper's protocol" : "as published"}`,
        })),
      )
      .filter((point) => point.x !== null && point.y !== null);

  // What many others cover is fainter.
  const fade = (opacity, number) => Math.max(0.06, Math.min(opacity, 30 / number));

  const drawPoints = async () => {
    const points = listShown()
      .filter((id) => x.value[id] !== null && y.value[id] !== null)
      .map((id) => ({
        id,
        method: data.settings[id].method,
        chosen: isChosen(id),
        x: x.value[id],
        y: y.value[id],
        xLow: x.low[id],
        xHigh: x.high[id],
        yLow: y.low[id],
        yHigh: y.high[id],
        label: `${nameSetting(id)}: ${x.label} ${show(x.value[id])}, ${y.label} ${show(y.value[id])}`,
      }))
      // What was chosen is drawn above the rest.
      .sort((a, b) => a.chosen - b.chosen);
    const published = listPublished();
    find("count").textContent = `${points.length} of ${data.settings.length} settings shown`;
    if (points.length + published.length === 0) {
      find("chart").replaceChildren(make("p", { className: "muted", textContent: "No setting has both measures and fits the filters." }));
      return;
    }
    const all = [...points, ...published];
    const across = { field: "x", type: "quantitative", scale: scale(x, all.map((point) => point.x)), axis: { title: titleAxis(x), tickCount: 6, grid: true } };
    const up = { field: "y", type: "quantitative", scale: scale(y, all.map((point) => point.y)), axis: { title: titleAxis(y), tickCount: 6, grid: true } };
    const colour = { field: "method", type: "nominal", scale: scaleMethods("colour"), legend: null };
    const shape = { field: "method", type: "nominal", scale: scaleMethods("shape"), legend: null };
    const chosen = (yes, no) => ({ condition: { test: "datum.chosen", value: yes }, value: no });
    const rule = { mark: { type: "rule", clip: true, aria: false }, encoding: { color: colour, opacity: chosen(0.55, fade(0.2, points.length)) } };
    const intervals = [
      { ...rule, transform: [{ filter: "datum.xLow !== null && datum.xHigh !== null" }], encoding: { ...rule.encoding, x: { ...across, field: "xLow" }, x2: { field: "xHigh" }, y: up } },
      { ...rule, transform: [{ filter: "datum.yLow !== null && datum.yHigh !== null" }], encoding: { ...rule.encoding, x: across, y: { ...up, field: "yLow" }, y2: { field: "yHigh" } } },
    ];
    const line = {
      data: { values: findLine(points) },
      mark: { type: "line", aria: false, interpolate: x.better === "lower" ? "step-after" : "step-before" },
      encoding: { x: across, y: up },
    };
    const papers = {
      data: { values: published },
      mark: { type: "point", filled: true, strokeWidth: 1.8, size: 190 },
      encoding: { x: across, y: up, shape, fill: colour, stroke: colour, fillOpacity: { condition: { test: "datum.side === 'ours'", value: 0.35 }, value: 0 }, description: { field: "label" } },
    };
    const marks = {
      mark: { type: "point", filled: true, cursor: "pointer" },
      encoding: { x: across, y: up, color: colour, shape, size: chosen(130, 60), opacity: chosen(1, 0.6), description: { field: "label" } },
    };
    await embed(find("chart"), {
      width: "container",
      height: 420,
      autosize: { type: "fit", contains: "padding" },
      data: { values: points },
      layer: [...(find("intervals").checked ? intervals : []), line, papers, marks],
    });
  };
  const listSet = () => {
    const traded = [data.accuracy, ...data.fairness];
    const within = {
      traded: (measure) => traded.includes(measure.name),
      between: (measure) => measure.level === "" && measure.better !== "none",
      all: () => true,
    }[find("set").value];
    return measures.filter(within);
  };

  const drawLines = async () => {
    const set = listSet();
    const onFrontier = (id) => data.settings[id].frontiers.length > 0;
    const ids = listShown().sort((a, b) => onFrontier(a) - onFrontier(b));
    const rows = [];
    const ends = [];
    for (const measure of set) {
      const { better, label } = measure;
      const height = { lower: (v) => -v, zero: (v) => -Math.abs(v) }[better] ?? ((v) => v);
      const known = measure.value.filter((value) => value !== null).sort((a, b) => height(a) - height(b));
      const [worst, best] = [known[0], known[known.length - 1]];
      const span = height(best) - height(worst);
      ends.push({ label, best: show(best), worst: show(worst) });
      for (const id of ids) {
        const value = measure.value[id];
        const share = value === null ? null : span === 0 ? 0.5 : (height(value) - height(worst)) / span;
        rows.push({ id, label, share, method: data.settings[id].method, chosen: onFrontier(id) });
      }
    }
    const across = { field: "label", type: "nominal", sort: null, scale: { domain: set.map((measure) => measure.label) }, axis: { title: null, labelAngle: -40, labelLimit: 220, grid: true, ticks: false } };
    const up = { type: "quantitative", scale: { domain: [-0.12, 1.12] }, axis: null };
    const number = (field, share, dy) => ({ data: { values: ends }, mark: { type: "text", dy, fontSize: 11, aria: false }, encoding: { x: across, y: { ...up, datum: share }, text: { field } } });
    await embed(find("lines"), {
      width: Math.max(find("lines").parentElement.clientWidth - 90, 74 * set.length),
      height: 300,
      layer: [
        {
          data: { values: rows },
          mark: { type: "line", strokeWidth: 1.6, cursor: "pointer", invalid: "break-paths-show-domains", aria: false },
          encoding: {
            x: across,
            y: { ...up, field: "share" },
            detail: { field: "id" },
            color: { field: "method", type: "nominal", scale: scaleMethods("colour"), legend: null },
            opacity: { condition: { test: "datum.chosen", value: 0.95 }, value: fade(0.35, ids.length) },
          },
        },
        number("best", 1, -11),
        number("worst", 0, 11),
      ],
    });
  };

  // A point or line of a chart carries the setting that it is of.
  const readId = (element) => element.__data__?.datum?.id;
  const mark = () => {
    for (const path of document.querySelectorAll("#explore .mark-symbol path, #explore .mark-line path")) {
      const id = readId(path);
      if (id === undefined) continue;
      path.dataset.id = id;
      path.classList.toggle("opened", id === opened);
      if (path.closest(".mark-symbol")) {
        path.setAttribute("role", "button");
        path.setAttribute("tabindex", "-1");
        path.classList.toggle("chosen", path.__data__.datum.chosen);
      }
    }
    // One stop for Tab; arrows go on from there.
    listPoints().at(-1)?.setAttribute("tabindex", "0");
  };
  const listPoints = () => [...find("chart").querySelectorAll(".mark-symbol path[data-id]")];

  // Hover, click and keys.

  const nameSetting = (id) => [data.settings[id].method, ...data.settings[id].setting].join(", ");
  const hideTip = () => (find("tip").hidden = true);
  const showTip = (lines, left, top) => {
    const tip = find("tip");
    tip.replaceChildren(...lines.map((line, number) => make(number ? "div" : "b", { textContent: line })));
    tip.hidden = false;
    const box = find("tip").offsetParent.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(left - box.left + 14, box.width - tip.offsetWidth - 8))}px`;
    // Above the point where there is no room below it.
    const below = top + 14 + tip.offsetHeight <= innerHeight;
    tip.style.top = `${top - box.top + (below ? 14 : -14 - tip.offsetHeight)}px`;
  };
  const describe = (id) => {
    const setting = data.settings[id];
    const line = (measure) => {
      const interval = showInterval(measure, id);
      return `${measure.label}: ${show(measure.value[id])}${interval && ` (${interval})`}`;
    };
    return [
      setting.method,
      ...setting.setting,
      line(x),
      line(y),
      setting.asks ? "needs the group at decision time" : "does not need the group",
    ];
  };
  const listen = (view) => {
    view.addEventListener("mousemove", (event, item) => {
      const datum = item?.datum;
      if (datum?.id !== undefined) showTip(describe(datum.id), event.clientX, event.clientY);
      else if (datum?.lines) showTip(datum.lines, event.clientX, event.clientY);
      else if (datum?.side) showTip([datum.label, `${x.label}: ${show(datum.x)}`, `${y.label}: ${show(datum.y)}`], event.clientX, event.clientY);
      else hideTip();
    });
    view.addEventListener("mouseout", hideTip);
    view.addEventListener("click", (_, item) => {
      if (item?.datum?.id !== undefined) openCard(item.datum.id);
    });
  };
  find("chart").addEventListener("focusin", (event) => {
    const id = readId(event.target);
    if (id === undefined) return;
    for (const path of listPoints()) path.setAttribute("tabindex", path === event.target ? "0" : "-1");
    const box = event.target.getBoundingClientRect();
    showTip(describe(id), box.right, box.bottom);
  });
  find("chart").addEventListener("focusout", hideTip);
  find("chart").addEventListener("keydown", (event) => {
    const id = readId(event.target);
    if (id === undefined) return;
    const along = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", -1], ArrowDown: ["y", 1], Home: ["x", -Infinity], End: ["x", Infinity] }[event.key];
    if (along) {
      const [axis, step] = along;
      const where = (path) => path.getBoundingClientRect()[axis];
      const points = listPoints().sort((a, b) => where(a) - where(b));
      const next = points.indexOf(event.target) + step;
      points[Math.max(0, Math.min(points.length - 1, next))].focus();
    } else if (event.key === "Enter" || event.key === " ") {
      openCard(id);
      find("card").focus();
    } else if (event.key === "Escape") hideTip();
    else return;
    event.preventDefault();
  });

  // The card of a setting.

  const cell = (measure, id) => {
    if (!measure) return make("td");
    if (measure.value[id] === null) return make("td", { className: "muted", textContent: "not estimable" });
    const rows = count(measure, id);
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
      { className: "scroll" },
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
  const SCORES_NOTE =
    `Scores are probabilities of the positive class on test, before a rule by group decides unless it corrects them. ` +
    `Calibration has Wilson's 95% intervals, and no tenth with fewer than ${data.minimum} rows of a group.`;
  const SCORES = { grid: true, tickCount: 5 };
  const listScores = (attribute, id) =>
    data.scores
      .filter((group) => group.attribute === attribute && group.share[id])
      .map((group, number) => ({
        name: group.level || "all rows",
        number,
        n: group.n[id],
        share: group.share[id],
        calibration: group.calibration[id],
      }));
  const paintLevel = ({ number }) => `var(--level-${number})`;
  const shapeLevel = ({ number }) => data.shapes[number];
  const drawScores = (attribute, id) => {
    const levels = listScores(attribute, id);
    if (levels.length === 0) return [];
    const keys = levels.map((level) => make("span", {}, drawSwatch(shapeLevel(level), paintLevel(level)), `${level.name} (n = ${level.n})`));
    const charts = ["distribution of scores", "calibration"].map((what) => {
      const chart = make("div", { className: "chart" });
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", `${attribute || "All rows"}: ${what}`);
      return chart;
    });
    const scale = (of) => ({ domain: levels.map((level) => level.name), range: levels.map(of) });
    const colour = { field: "name", type: "nominal", scale: scale(paintLevel), legend: null };
    const bins = levels[0].share.length;
    const steps = levels.flatMap(({ name, share }) => [...share, share.at(-1)].map((part, bin) => ({ name, score: bin / bins, share: part / 1000 })));
    const points = levels.flatMap(({ name, calibration }) =>
      calibration.map((percents) => {
        const [score, positive, low, high] = percents.map((percent) => percent / 100);
        const [mean, ...shares] = percents.map((percent) => `${percent}%`);
        return { name, score, positive, low, high, lines: [name, `Mean score: ${mean}`, `Positives: ${shares[0]} (${shares[1]} – ${shares[2]})`] };
      }),
    );
    const size = { width: "container", height: 230, autosize: { type: "fit", contains: "padding" } };
    const across = (title) => ({ field: "score", type: "quantitative", scale: { domain: [0, 1] }, axis: { ...SCORES, title } });
    const up = (field, title, axis) => ({ field, type: "quantitative", scale: field === "share" ? {} : { domain: [0, 1] }, axis: { ...SCORES, ...axis, title } });
    const specs = [
      {
        ...size,
        data: { values: steps },
        mark: { type: "line", interpolate: "step-after", strokeWidth: 1.8 },
        encoding: { x: across("Score"), y: up("share", "Share of the group", { format: "%" }), color: colour },
      },
      {
        ...size,
        data: { values: points },
        encoding: { x: across("Mean score of a tenth") },
        layer: [
          { data: { values: [{ score: 0 }, { score: 1 }] }, mark: { type: "line", color: "#8b949e", strokeDash: [3, 3], strokeWidth: 1 }, encoding: { y: { field: "score", type: "quantitative" } } },
          { mark: { type: "rule", strokeWidth: 1.4 }, encoding: { y: up("low", "Share of positives"), y2: { field: "high" }, color: colour } },
          { mark: { type: "point", filled: true, size: 55, opacity: 1 }, encoding: { y: up("positive", "Share of positives"), color: colour, shape: { field: "name", type: "nominal", scale: scale(shapeLevel), legend: null } } },
        ],
      },
    ];
    // A chart needs its place on the page to know its width.
    requestAnimationFrame(() => charts.forEach((chart, number) => chart.isConnected && embed(chart, specs[number])));
    return [make("div", { className: "pair" }, make("p", { className: "legend" }, ...keys), ...charts)];
  };
  const openCard = (id) => {
    opened = id;
    const setting = data.settings[id];
    const close = make("button", { type: "button", textContent: "Close" });
    close.addEventListener("click", closeCard);
    const labels = setting.frontiers.map((name) => data.measures.find((measure) => measure.name === name)?.label ?? name);
    const facts = [
      labels.length ? `on the frontier of ${labels.join("; ")}` : "on no frontier",
      setting.asks ? "needs the group at decision time" : "does not need the group at decision time",
      setting.individual ? "trained to be individually fair" : "not trained to be individually fair",
      setting.splits === 1 ? "1 split" : `mean of ${setting.splits} splits`,
    ];
    const attributes = [...new Set(data.measures.map((measure) => measure.attribute))].sort();
    const noted = data.scores.length ? [make("p", { className: "small wrap", textContent: SCORES_NOTE })] : [];
    for (const chart of find("card").querySelectorAll(".chart")) chart.finalize?.();
    find("card").replaceChildren(
      make("h3", {}, setting.method, " ", ...setting.setting.map((word) => make("span", { className: "chip", textContent: word })), close),
      make("p", { className: "small wrap", textContent: facts.join(" · ") }),
      ...(setting.command ? [make("p", { className: "small", textContent: "To get this model:" }), make("pre", { tabIndex: 0, textContent: setting.command })] : []),
      ...noted,
      ...attributes.map((attribute) =>
        make(
          "details",
          { open: true },
          make("summary", { textContent: attribute || "All rows" }),
          ...drawScores(attribute, id),
          ...tabulateAttribute(attribute, id),
        ),
      ),
    );
    find("card").setAttribute("aria-label", `Measures of ${nameSetting(id)}`);
    find("card").hidden = false;
    find("card").scrollIntoView({ block: "nearest" });
    mark();
  };
  const closeCard = () => {
    const id = opened;
    opened = undefined;
    find("card").hidden = true;
    mark();
    listPoints().find((path) => readId(path) === id)?.focus();
  };
  find("card").addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeCard();
  });

  // Controls.

  const listMeasures = () => {
    const groups = new Map();
    measures.forEach((measure, number) => {
      const name = measure.attribute === "" ? "All rows" : measure.level === "" ? `${measure.attribute}: between groups` : `${measure.attribute}: ${measure.level}`;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(make("option", { value: number, textContent: measure.label }));
    });
    return [...groups].map(([label, options]) => make("optgroup", { label }, ...options));
  };
  const drawSwatch = (shape, fill) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.setAttribute("viewBox", "-1.2 -1.2 2.4 2.4");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", shape);
    path.setAttribute("fill", fill);
    svg.append(path);
    return svg;
  };
  const listMethods = () =>
    data.methods.map((method) => {
      const box = make("input", { type: "checkbox", checked: !hidden.has(method.name) });
      box.addEventListener("change", () => {
        hidden[box.checked ? "delete" : "add"](method.name);
        draw();
      });
      return make("label", { className: "check" }, box, drawSwatch(method.shape, paint(method.name)), method.name);
    });
  const draw = async () => {
    x = measures[find("x").value];
    y = measures[find("y").value];
    hideTip();
    await Promise.all([drawPoints(), drawLines()]);
  };
  const drawMethods = () => find("methods").replaceChildren(find("methods").firstElementChild, ...listMethods());

  if (measures.length === 0) return;
  const library = URL.createObjectURL(new Blob([await unpack("library").text()], { type: "text/javascript" }));
  await new Promise((resolve, reject) => {
    document.head.append(make("script", { src: library, onload: resolve, onerror: reject }));
  });
  for (const [name, wanted] of [["x", data.accuracy], ["y", data.fairness[0]]]) {
    find(name).append(...listMeasures());
    find(name).value = Math.max(0, position(wanted));
  }
  drawMethods();
  for (const name of ["x", "y", "asks", "individual", "intervals", "published", "set"]) find(name)?.addEventListener("change", draw);
  dark.addEventListener("change", () => {
    drawMethods();
    draw();
  });
  find("x").closest("section").hidden = false;
  draw();
})();
