// <hg-chart> draws a chart with uPlot from the table in the same figure. When the
// event stream changes the table, the chart is drawn again.
"use strict";
(() => {
  // Returns a color of the style sheet in the form that a canvas accepts. The
  // browser resolves light-dark() for the current theme.
  function read(element, name) {
    element.style.color = `var(--chart-${name})`;
    const color = getComputedStyle(element).color;
    element.style.color = "";
    return color;
  }

  // Returns the size of the text of the page relative to the usual one. A display on a wall has larger text.
  const grown = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

  const faint = (color, alpha) => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);

  // The textures of areas, by color. Each draws lines or dots on a tile of 6 by 6.
  const textures = {
    bad: (ctx) => { ctx.moveTo(-1, 7); ctx.lineTo(7, -1); },
    warn: (ctx) => ctx.rect(2, 2, 2, 2),
    violet: (ctx) => { ctx.moveTo(0, 3); ctx.lineTo(6, 3); },
    blue: (ctx) => { ctx.moveTo(-1, -1); ctx.lineTo(7, 7); },
    pink: (ctx) => { ctx.moveTo(0, 3); ctx.lineTo(6, 3); ctx.moveTo(3, 0); ctx.lineTo(3, 6); },
    quiet: (ctx) => { ctx.moveTo(3, 0); ctx.lineTo(3, 6); },
  };

  // Returns the fill of an area. Areas differ in lightness and texture, so that colors are not the only sign.
  function texture(name, color) {
    const draw = textures[name];
    if (!draw) return faint(color, 0.5);
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(6 * devicePixelRatio);
    const ctx = tile.getContext("2d");
    ctx.scale(tile.width / 6, tile.width / 6);
    ctx.fillStyle = faint(color, 0.5);
    ctx.fillRect(0, 0, 6, 6);
    ctx.beginPath();
    draw(ctx);
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.5;
    ctx.stroke();
    return ctx.createPattern(tile, "repeat");
  }

  // The dashes of the lines of a chart, in the order of its series.
  const dashes = [undefined, [6, 3], [2, 3], [12, 4], [10, 3, 2, 3], [4, 8]];

  // Returns the numbers of a table: an array of times, and one array for each
  // series, in which null is a gap.
  function numbers(table) {
    const rows = [...table.tBodies[0].rows];
    const columns = [...table.tHead.rows[0].cells].slice(1);
    const data = [rows.map((row) => Number(row.dataset.x))];
    columns.forEach((_, i) => {
      data.push(rows.map((row) => (row.cells[i + 1].dataset.v === undefined ? null : Number(row.cells[i + 1].dataset.v))));
    });
    return { data, names: columns.map((cell) => cell.textContent), colors: columns.map((cell) => cell.dataset.color || "accent"), lines: columns.map((cell) => cell.dataset.line !== undefined) };
  }

  // Returns the cumulative sums of the series, which a stacked chart draws.
  function stacked(data) {
    const sums = [data[0]];
    for (let i = 1; i < data.length; i++) {
      const below = i > 1 ? sums[i - 1] : null;
      sums.push(data[i].map((v, at) => (v === null ? null : v + (below?.[at] ?? 0))));
    }
    return sums;
  }

  // Returns the values of steps without the unfinished step, whose path ends where that step starts. A path
  // that has no unfinished step ends at the end of its last step. The series after the areas are lines; their values are
  // not unfinished.
  function closed(data, step, unfinished, areas) {
    return data.map((values, i) => {
      if (values.length === 0 || (unfinished && i > areas)) return values;
      if (unfinished) return i ? [...values.slice(0, -1), values.at(-2) ?? null] : values;
      return [...values, values.at(-1) + (i ? 0 : step)];
    });
  }

  // The indices of values between two gaps. A line has no length there, so the chart draws a point.
  function isolated(u, i) {
    const values = u.data[i];
    const gap = (at) => values[at] === null || values[at] === undefined;
    return values.flatMap((_, at) => (!gap(at) && gap(at - 1) && gap(at + 1) ? [at] : []));
  }

  // A Clock formats instants in a time zone, in the form of the pages.
  class Clock {
    constructor(zone) {
      this.zone = zone;
      const form = { timeZone: zone, day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
      this.format = new Intl.DateTimeFormat("en-US", form);
    }
    parts(seconds) {
      const parts = Object.fromEntries(this.format.formatToParts(seconds * 1000).map((part) => [part.type, part.value]));
      return { day: `${parts.day} ${parts.month}`, year: parts.year, time: `${parts.hour}:${parts.minute}` };
    }
    // when returns the time of a step. Days start at midnight UTC, so that in other zones a day has a time.
    when(seconds, step) {
      const { day, year, time } = this.parts(seconds);
      if (step >= 86400 && time === "00:00") return `${day} ${year}`;
      return `${day}, ${time} ${this.zone}`;
    }
    tick(seconds, incr) {
      const { day, time } = this.parts(seconds);
      return incr >= 86400 || time === "00:00" ? day : time;
    }
  }

  function brief(value, unit) {
    if (unit === "%") return `${+value.toFixed(2)}%`;
    if (unit === "µs") {
      if (value < 1000) return `${+value.toFixed(1)} µs`;
      return value < 1e6 ? `${+(value / 1000).toFixed(2)} ms` : `${+(value / 1e6).toFixed(2)} s`;
    }
    for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${+(value / size).toFixed(2)} ${name}`;
    }
    return String(+value.toFixed(2));
  }

  // Marks are the events of a chart: a bar of buttons above the chart, and a line in the chart for each. They come
  // from the list that data-events names. Events that are close together share a button.
  class Marks {
    constructor(element) {
      this.element = element;
      this.list = document.getElementById(element.dataset.events);
      this.shown = []; // the buttons, with the place and the rows of each
      this.bar = document.createElement("div");
      this.bar.className = "event-marks";
      this.bar.setAttribute("role", "toolbar");
      this.bar.setAttribute("aria-label", "Changes and alerts");
      this.bar.hidden = true;
      this.text = document.createElement("p");
      this.text.className = "event-text";
      this.text.setAttribute("aria-hidden", "true"); // the label of the button has the text
      this.bar.addEventListener("keydown", (event) => this.press(event));
      this.bar.addEventListener("mouseleave", () => this.tell(null));
      this.bar.addEventListener("focusout", () => this.tell(null));
    }

    watch() {
      if (this.list) new MutationObserver(() => this.element.chart?.redraw(false)).observe(this.list, { childList: true });
    }

    // place creates a button for each group of events that are at least as far apart as a button is wide.
    place(u) {
      const times = this.element.real[0];
      const marks = [];
      for (const row of [...(this.list?.querySelectorAll("tr[data-x]") ?? [])].reverse()) { // the oldest first
        const x = Number(row.dataset.x);
        if (!times.length || x < times[0] || x >= times.at(-1) + this.element.step) continue;
        const left = Math.round(u.over.offsetLeft + u.valToPos(x, "x"));
        const last = marks.at(-1);
        if (last && left - last.left < 26) last.rows.push(row);
        else marks.push({ left, x, rows: [row] });
      }
      for (const mark of marks) mark.words = this.words(mark);
      const key = JSON.stringify(marks.map((mark) => [mark.left, mark.words]));
      if (key === this.key) return;
      this.key = key;
      const focus = this.shown.findIndex((mark) => mark.button === document.activeElement);
      for (const mark of marks) mark.button = this.button(mark);
      this.shown = marks;
      this.bar.replaceChildren(...marks.map((mark) => mark.button), this.text);
      this.bar.hidden = marks.length === 0;
      this.tell(null);
      this.roam(Math.max(0, Math.min(focus, marks.length - 1)));
      if (focus >= 0) marks[this.at]?.button.focus();
    }

    button(mark) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = mark.rows.length > 1 ? mark.rows.length : mark.rows[0].dataset.mark;
      button.setAttribute("aria-label", mark.rows.length > 1 ? `${mark.rows.length} events: ${mark.words}` : mark.words);
      button.style.left = `${mark.left}px`;
      button.addEventListener("mouseenter", () => this.tell(mark));
      button.addEventListener("focus", () => this.tell(mark));
      button.addEventListener("click", () => this.open(mark));
      return button;
    }

    // words describes the events of a button.
    words(mark) {
      const most = 4;
      const list = mark.rows.slice(0, most).map((row) => {
        const [time, , label, objects] = [...row.cells].map((cell) => cell.textContent.trim().replace(/\s+/g, " ").replaceAll(" ,", ","));
        return `${time} ${label}${objects ? `: ${objects}` : ""}`;
      });
      if (mark.rows.length > most) list.push(`${mark.rows.length - most} more`);
      return list.join("; ");
    }

    // tell shows the text of a button, or hides it.
    tell(mark) {
      this.text.hidden = !mark;
      if (!mark) return;
      this.text.textContent = mark.words;
      const most = this.element.clientWidth - this.text.offsetWidth;
      this.text.style.left = `${Math.max(0, Math.min(mark.left - 12, most))}px`;
    }

    // open shows the events of a button in the list.
    open(mark) {
      this.list.querySelector("details").open = true;
      const row = mark.rows[0];
      row.tabIndex = -1;
      row.scrollIntoView({ block: "center" });
      row.focus();
    }

    // roam makes one button reachable with Tab. The arrow keys lead to the others.
    roam(at) {
      this.shown.forEach((mark, i) => { mark.button.tabIndex = i === at ? 0 : -1; });
      this.at = at;
    }

    press(event) {
      if (event.key === "Escape") return this.tell(null);
      const last = this.shown.length - 1;
      const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.roam(Math.max(0, Math.min(to, last)));
      this.shown[this.at].button.focus();
    }

    // draw draws a line in the chart for each button.
    draw(u) {
      this.place(u);
      const { ctx } = u;
      ctx.save();
      ctx.strokeStyle = read(this.element, "text");
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([2 * devicePixelRatio, 2 * devicePixelRatio]);
      for (const { x } of this.shown) {
        const left = Math.round(u.valToPos(x, "x", true));
        ctx.beginPath();
        ctx.moveTo(left, u.bbox.top);
        ctx.lineTo(left, u.bbox.top + u.bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }
  }

  let sharing = false; // set while a chart moves the cursor of the others

  class Chart extends HTMLElement {
    connectedCallback() {
      this.figure = this.closest("figure");
      this.table = () => this.figure.querySelector("table");
      if (!this.table() || !window.uPlot) return;
      this.legend = this.querySelector(".legend");
      this.plot = this.querySelector(".plot");
      this.plot.tabIndex = 0;
      this.plot.setAttribute("role", "application");
      this.plot.setAttribute("aria-roledescription", "chart");
      this.aloud = document.createElement("p");
      this.aloud.className = "hidden";
      this.aloud.setAttribute("role", "status");
      this.marks = new Marks(this);
      this.plot.before(this.marks.bar);
      this.append(this.aloud);
      this.off = new Set();
      this.plot.addEventListener("keydown", (event) => this.press(event));
      this.plot.addEventListener("blur", () => this.leave());
      this.draw();
      new MutationObserver(() => this.follow()).observe(this.table().parentElement, { childList: true });
      this.marks.watch();
      new ResizeObserver(() => this.fit()).observe(this);
      const redraw = () => this.draw();
      for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).addEventListener("change", redraw);
    }

    // take reads the table, updates the summary, and returns the numbers to draw.
    take() {
      const table = this.table();
      const read = numbers(table);
      this.step = Number(table.dataset.step) || 60;
      if (this.clock?.zone !== table.dataset.zone) this.clock = new Clock(table.dataset.zone || "UTC");
      this.real = read.data;
      this.unfinished = table.tBodies[0].rows[table.tBodies[0].rows.length - 1]?.dataset.unfinished !== undefined;
      const summary = table.caption?.textContent ?? "";
      this.plot.setAttribute("aria-label", `${summary} Arrow keys read the values.`);
      this.values = read.data;
      read.data = read.data.map((values, i) => (i && this.off.has(read.names[i - 1]) ? values.map((v) => this.hidden(v, read.lines[i - 1])) : values));
      const shown = this.figure.querySelector("[data-summary]");
      if (shown) shown.textContent = summary;
      const area = this.dataset.kind === "area";
      // The columns of a chart of areas are the areas, and then lines, which are not stacked.
      this.areas = area ? read.lines.filter((line) => !line).length : 0;
      this.sums = area ? [...stacked(read.data.slice(0, this.areas + 1)), ...read.data.slice(this.areas + 1)] : read.data;
      this.few = area ? this.fewOf(read) : undefined;
      const without = (values, i) => (i ? [...values.slice(0, -1), null] : values);
      const drawn = area ? closed(this.sums, this.step, this.unfinished, this.areas) : this.unfinished ? read.data.map(without) : read.data;
      return { ...read, drawn };
    }

    // hidden returns what is drawn instead of a value of a series that is off.
    hidden(value, line) { return this.dataset.kind === "area" && !line && value !== null ? 0 : null; }

    // press moves the cursor with the keyboard, and reads the values aloud.
    press(event) {
      const last = this.real[0].length - 1;
      const to = { ArrowLeft: (this.at ?? last + 1) - 1, ArrowRight: (this.at ?? last - 1) + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") return this.leave();
      if (to === undefined || last < 0) return;
      event.preventDefault();
      const at = Math.min(last, Math.max(0, to));
      this.show(this.real[0][at]);
      this.share(at);
      this.aloud.textContent = `${this.time.textContent}: ${this.parts.map((part) => part.textContent).join(", ")}`;
    }

    leave() {
      this.show(null);
      this.aloud.textContent = "";
      this.share(null);
    }

    // share shows the numbers at the cursor, and moves the cursor of the other charts of the page to the same time.
    share(at) {
      this.point(at);
      if (sharing) return;
      sharing = true;
      for (const other of document.querySelectorAll("hg-chart")) {
        if (other !== this && other.parts) other.show(this.at === null ? null : this.real[0][this.at]);
      }
      sharing = false;
    }

    // show moves the cursor to a time, or removes it.
    show(seconds) {
      const times = this.real[0];
      const inside = seconds !== null && times.length > 0 && seconds >= times[0] && seconds < times.at(-1) + this.step;
      this.chart?.setCursor(inside ? { left: this.chart.valToPos(seconds, "x"), top: 1 } : { left: -10, top: -10 }, false);
      this.point(inside ? times.findLastIndex((time) => time <= seconds) : null);
    }

    // toggle shows or hides a series.
    toggle(name) {
      if (!this.off.delete(name)) this.off.add(name);
      this.draw();
      this.parts[this.labels.indexOf(name)].focus();
    }

    // drawLegend creates the legend. If there are several series, each has a button that hides it.
    drawLegend() {
      this.parts = this.labels.map((name, i) => {
        const part = document.createElement(this.labels.length > 1 ? "button" : "span");
        part.dataset.color = this.colors[i];
        if (this.areas && i >= this.areas) part.dataset.line = i - this.areas + 1;
        if (this.labels.length > 1) {
          part.type = "button";
          part.setAttribute("aria-pressed", String(!this.off.has(name)));
          part.addEventListener("click", () => this.toggle(name));
        }
        return part;
      });
      this.time = document.createElement("b");
      this.legend.replaceChildren(...this.parts, this.time);
    }

    // brush selects a period with a finger, as the mouse does. Vertical moves still scroll the page.
    brush(u) {
      let start = null;
      const width = (event) => Math.abs(event.offsetX - start);
      u.over.addEventListener("pointerdown", (event) => {
        if (event.pointerType !== "mouse") start = event.offsetX;
      });
      u.over.addEventListener("pointermove", (event) => {
        if (start === null) return;
        u.setCursor({ left: event.offsetX, top: event.offsetY });
        if (this.dataset.zoom) u.setSelect({ left: Math.min(start, event.offsetX), width: width(event), top: 0, height: u.over.clientHeight }, false);
      });
      const end = (event, chosen) => {
        if (start === null) return;
        if (chosen) this.zoom(u);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        start = null;
      };
      u.over.addEventListener("pointerup", (event) => end(event, true));
      u.over.addEventListener("pointercancel", (event) => end(event, false));
    }

    // fewOf returns the series of the strip above the chart, if its numbers are too low to be seen in the chart.
    fewOf({ data, names }) {
      const at = names.indexOf(this.dataset.strip) + 1;
      if (!at) return undefined;
      const most = Math.max(0, ...data[at]);
      const total = Math.max(0, ...this.sums[this.areas]);
      return most > 0 && most < total / 20 ? { values: data[at], most, name: names[at - 1], color: at - 1 } : undefined;
    }

    // key identifies what the chart shows, except the numbers. If it changes, the chart is created again.
    key(names) { return [names, this.unfinished, Boolean(this.few), this.clock.zone].join(); }

    follow() {
      if (!this.table()) return;
      const { drawn, names } = this.take();
      if (!this.chart || this.key(names) !== this.shown) return this.draw();
      this.chart.setData(drawn);
      this.point(this.chart.cursor.idx);
    }

    size() {
      return { width: Math.max(200, Math.floor(this.clientWidth)), height: Math.round(grown() * (matchMedia("(width < 40rem)").matches ? 170 : 230)) };
    }

    fit() {
      const { width, height } = this.size();
      if (this.chart && (this.chart.width !== width || this.chart.height !== height)) this.chart.setSize({ width, height });
    }

    draw() {
      this.chart?.destroy();
      this.parts = null; // until the new legend exists
      const { drawn, names, colors } = this.take();
      this.shown = this.key(names);
      this.labels = names;
      this.colors = colors;
      const kind = this.dataset.kind;
      const unit = this.dataset.unit;
      const more = grown();
      const font = `${12 * more}px "Inter", system-ui, sans-serif`;
      const axis = { stroke: read(this, "text"), grid: { stroke: read(this, "grid"), width: 1 }, ticks: { show: false }, font, labelFont: font, labelSize: 16 * more, labelGap: 0 };
      const series = names.map((label, i) => {
        const color = read(this, colors[i]);
        const line = kind === "line" || (kind === "area" && i >= this.areas);
        return {
          label, stroke: color, width: line ? 2 : 1.5, points: { show: false, filter: kind === "line" ? isolated : undefined },
          paths: kind === "bars" ? uPlot.paths.bars({ size: [0.8, 40] }) : kind === "area" ? uPlot.paths.stepped({ align: 1 }) : undefined,
          dash: line ? dashes[i - this.areas + (kind === "area" ? 1 : 0)] : undefined, fill: line ? undefined : texture(colors[i], color),
        };
      });
      // uPlot paints series in this order, so that the highest sum of a stacked chart comes first.
      const order = drawn.slice(1).map((_, i) => (i < this.areas ? this.areas - i : i + 1));
      const data = [drawn[0], ...order.map((i) => drawn[i])];
      const bands = kind === "area" ? order.slice(1, this.areas).map((_, i) => ({ series: [i + 1, i + 2] })) : undefined;
      this.order = order;
      this.chart = new uPlot(
        {
          ...this.size(), padding: [this.few ? 44 : 12, 20, 0, 0], legend: { show: false }, tzDate: (ts) => uPlot.tzDate(new Date(ts * 1000), this.clock.zone),
          cursor: { drag: { x: Boolean(this.dataset.zoom), y: false, setScale: false }, points: { size: 6 } },
          scales: { x: { time: true, range: () => this.span() }, y: { range: () => this.bounds() } },
          axes: [
            { ...axis, size: 28 * more, gap: 8, space: 50 * more, label: `Time (${this.clock.zone})${this.unfinished ? " · dashed: unfinished" : ""}`, values: (u, splits, _a, _s, incr) => splits.map((s) => this.clock.tick(s, incr)) },
            { ...axis, size: 56 * more, label: this.dataset.axis || undefined, values: (_, splits) => splits.map((v) => brief(v, unit)) },
          ],
          series: [{}, ...order.map((i) => series[i - 1])], bands,
          hooks: { draw: [(u) => this.drawUnfinished(u, series), (u) => this.drawStrip(u, series), (u) => this.marks.draw(u)], setCursor: [(u) => this.share(u.cursor.idx)], setSelect: [(u) => this.zoom(u)] },
        },
        data, this.plot,
      );
      const set = this.chart.setData.bind(this.chart);
      this.chart.setData = (next) => set([next[0], ...order.map((i) => next[i])]);
      this.brush(this.chart);
      this.drawLegend();
      this.point(null);
    }

    // span returns the bounds of the x axis: all steps, each as wide as the time that it counts.
    span() {
      const times = this.real[0];
      return times.length ? [times[0], times.at(-1) + this.step] : [0, 1];
    }

    // bounds returns the bounds of the y axis.
    bounds() {
      const values = this.sums.slice(1).flat().filter((v) => v !== null);
      const high = Math.max(0, ...values);
      return [Math.min(0, ...values), high > 0 ? high * 1.08 : 1];
    }

    // drawStrip draws the series of the strip above the chart, in a scale of its own.
    drawStrip(u, series) {
      if (!this.few) return;
      const { ctx } = u;
      const px = devicePixelRatio;
      const bottom = u.bbox.top - 8 * px;
      const high = 18 * px;
      const x = (at) => u.valToPos(at, "x", true);
      ctx.save();
      ctx.fillStyle = series[this.few.color].stroke;
      this.few.values.forEach((value, i) => {
        if (!value) return;
        const left = x(this.real[0][i]);
        const height = Math.max(3 * px, (value / this.few.most) * high);
        ctx.fillRect(left, bottom - height, Math.max(2 * px, x(this.real[0][i] + this.step) - left - px), height);
      });
      ctx.fillStyle = read(this, "text");
      ctx.font = `${12 * grown() * px}px "Inter", system-ui, sans-serif`;
      ctx.textAlign = "left";
      ctx.fillText(this.fewLabel(), u.bbox.left, bottom - high - 4 * px);
      ctx.fillRect(u.bbox.left, bottom, u.bbox.width, px);
      ctx.restore();
    }

    fewLabel() { return `${this.few.name}, up to ${brief(this.few.most, this.dataset.unit)}`; }

    // drawUnfinished draws the step that has not ended with dashes, because its numbers still grow.
    drawUnfinished(u, series) {
      const last = this.real[0].length - 1;
      if (!this.unfinished || this.dataset.kind === "bars") return;
      const { ctx } = u;
      const x = (at) => u.valToPos(at, "x", true);
      const y = (value) => u.valToPos(value, "y", true);
      const dot = 3 * devicePixelRatio;
      ctx.save();
      ctx.setLineDash([dot, dot]);
      series.forEach((line, i) => {
        const value = this.sums[i + 1][last];
        if (value === null) return;
        ctx.strokeStyle = line.stroke;
        ctx.lineWidth = line.width * devicePixelRatio;
        ctx.beginPath();
        if (this.areas && i >= this.areas) {
          ctx.setLineDash(line.dash.map((length) => length * devicePixelRatio));
          ctx.moveTo(x(this.real[0][last]), y(value));
          ctx.lineTo(x(this.real[0][last] + this.step), y(value));
        } else if (this.dataset.kind === "area") {
          const below = i ? this.sums[i][last] : 0;
          if (value === below) return;
          ctx.fillStyle = line.fill;
          ctx.rect(x(this.real[0][last]), y(value), x(this.real[0][last] + this.step) - x(this.real[0][last]), y(below) - y(value));
          ctx.fill();
        } else {
          const before = last ? this.sums[i + 1][last - 1] : null;
          if (before !== null) ctx.moveTo(x(this.real[0][last - 1]), y(before));
          if (before !== null) ctx.lineTo(x(this.real[0][last]), y(value));
          ctx.moveTo(x(this.real[0][last]) + dot, y(value));
          ctx.arc(x(this.real[0][last]), y(value), dot, 0, 2 * Math.PI);
        }
        ctx.stroke();
      });
      ctx.restore();
    }

    // point shows the numbers at the cursor in the legend, or only the names without a cursor.
    point(at) {
      if (!this.parts) return;
      const last = this.real[0].length - 1;
      if (at > last) at = last; // the end of the last step
      this.at = at ?? null;
      this.labels.forEach((name, i) => {
        const v = this.at === null ? undefined : this.values[i + 1][at];
        this.parts[i].textContent = v === undefined ? name : `${name} ${v === null ? "–" : brief(v, this.dataset.unit)}`;
      });
      const seconds = this.at === null ? undefined : this.real[0][at];
      this.time.textContent = seconds === undefined ? "" : this.clock.when(seconds, this.step);
      if (seconds !== undefined && this.unfinished && at === last) this.time.textContent += ", unfinished";
    }

    // zoom opens the page for the period that the user selected in the chart.
    zoom(u) {
      if (!this.dataset.zoom || u.select.width < 8) return;
      const from = Math.min(u.posToVal(u.select.left, "x"), Date.now() / 1000);
      const to = u.posToVal(u.select.left + u.select.width, "x");
      const address = new URL(this.dataset.zoom, location.href);
      const minute = (s) => `${new Date(s * 1000).toISOString().slice(0, 16)}${address.searchParams.has("tz") ? "Z" : ""}`;
      address.searchParams.delete("range");
      address.searchParams.set("from", minute(Math.floor(from / 60) * 60));
      address.searchParams.set("to", minute(Math.max(Math.ceil(to / 60), Math.floor(from / 60) + 5) * 60));
      location.assign(address);
    }
  }
  customElements.define("hg-chart", Chart);
})();
