// Enhancements of the pages. All pages also work without this script.
"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Says whether the page is connected. Without a connection, the page names the time of its
  // figures, and the style sheet shows them in gray.
  function connected(is) {
    const root = document.documentElement;
    const state = is ? "open" : "away";
    if (root.dataset.stream === state) return;
    root.dataset.stream = state;
    const place = one("[data-lost]");
    if (!place) return;
    const zone = document.body.dataset.zone;
    const clock = new Intl.DateTimeFormat("en-GB", { timeZone: zone, timeStyle: "medium" });
    place.textContent = is ? "" : `Connection lost at ${clock.format(Date.now())} ${zone}. The figures are from then. This page connects again by itself.`;
  }

  // An EventSource for htmx that disconnects while the page is hidden, because
  // browsers open only a few connections to one host. It reconnects after errors
  // with growing delays, so that htmx never sees an error. The server sends the
  // event beat every 15 s; without it, the connection is lost.
  const silence = 45000;
  class RestingSource extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.heard = new Map();
      this.readyState = EventSource.CONNECTING;
      this.wait = 1000;
      this.turn = () => (document.hidden ? this.rest() : this.wake());
      document.addEventListener("visibilitychange", this.turn);
      addEventListener("pagehide", () => this.rest());
      addEventListener("pageshow", this.turn);
      this.turn();
    }
    wake() {
      if (this.source || this.readyState === EventSource.CLOSED) return;
      clearTimeout(this.timer);
      const source = (this.source = new EventSource(this.url));
      source.onopen = (event) => {
        this.readyState = EventSource.OPEN;
        this.wait = 1000;
        this.listen();
        connected(true);
        this.onopen?.(event);
      };
      source.onerror = () => {
        connected(false);
        if (source.readyState === EventSource.CLOSED) this.retry();
      };
      source.addEventListener("beat", () => this.listen());
      for (const [name, listeners] of this.heard) {
        for (const listener of listeners) source.addEventListener(name, listener);
      }
    }
    listen() {
      clearTimeout(this.deadline);
      this.deadline = setTimeout(() => {
        connected(false);
        this.retry();
      }, silence);
    }
    retry() {
      this.rest();
      this.timer = setTimeout(this.turn, this.wait);
      this.wait = Math.min(2 * this.wait, 60000);
    }
    rest() {
      clearTimeout(this.timer);
      clearTimeout(this.deadline);
      this.source?.close();
      this.source = undefined;
    }
    close() {
      this.readyState = EventSource.CLOSED;
      document.removeEventListener("visibilitychange", this.turn);
      this.rest();
    }
    addEventListener(name, listener) {
      if (!this.heard.has(name)) this.heard.set(name, new Set());
      this.heard.get(name).add(listener);
      this.source?.addEventListener(name, listener);
    }
    removeEventListener(name, listener) {
      this.heard.get(name)?.delete(listener);
      this.source?.removeEventListener(name, listener);
    }
  }
  if (window.htmx) window.htmx.createEventSource = (url) => new RestingSource(url);

  // The time zone of the browser is one of the choices.
  const zones = one("[data-zones]");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zones && zone) {
    const option = [...zones.options].find((o) => o.value === zone) ?? zones.appendChild(new Option("", zone));
    option.text = zone === "UTC" ? "UTC (browser)" : `Browser: ${zone}`;
  }

  // Times: updates the relative text, and shows the exact time on hover, in the
  // user's time zone and in UTC.
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const words = new Intl.RelativeTimeFormat("en", { numeric: "always" });
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  function tell(time) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) return;
    if (!time.dataset.exact) time.dataset.exact = time.title;
    time.title = `${time.dataset.exact} · ${local.format(at)} here`;
    if (!time.hasAttribute("data-relative")) return;
    const seconds = (at - Date.now()) / 1000;
    const far = Math.abs(seconds);
    if (far >= 14 * 86400) return;
    if (far < 60) {
      time.textContent = seconds > 0 ? "in less than a minute" : "just now";
      return;
    }
    const [unit, size] = units.find(([name, length]) => far >= (name === "day" ? 2 * length : length));
    time.textContent = words.format(Math.trunc(seconds / size), unit);
  }
  const tellAll = (root = document) => all("time[datetime]", root).forEach(tell);

  // Copy buttons copy the text beside them, or the element that data-copy names.
  function readyCopies(root = document) {
    if (!navigator.clipboard) return;
    for (const button of all("[data-copy][hidden]", root)) button.hidden = false;
  }
  async function copy(button) {
    const from = button.dataset.copy ? document.getElementById(button.dataset.copy) : one("pre, input, code", button.parentElement);
    await navigator.clipboard.writeText(from.value ?? from.textContent);
    say("Copied.");
    button.dataset.done = "";
    setTimeout(() => delete button.dataset.done, 1500);
  }

  // Shows the result of an action on the page and to screen readers.
  function say(text) {
    let toast = document.getElementById("toast");
    if (!toast) {
      toast = document.createElement("div");
      toast.id = "toast";
      toast.setAttribute("role", "status");
      document.body.append(toast);
    }
    toast.textContent = text;
    toast.classList.add("shown");
    clearTimeout(say.timer);
    say.timer = setTimeout(() => toast.classList.remove("shown"), 2500);
  }

  // Tables can be saved as CSV. A cell that a spreadsheet would read as a formula begins with an apostrophe.
  const cell = (text) => (/^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+%?$/.test(text) ? `'${text}` : text);
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  function textOf(part) {
    if (part.dataset.v !== undefined) return part.dataset.v;
    const time = one("time[datetime]", part);
    return time && time.textContent.trim() === part.textContent.trim() ? time.dateTime : part.innerText.trim().replace(/\s+/g, " ");
  }
  function readyTables() {
    for (const place of all("[data-csv-of]:empty")) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "button button-quiet button-small", textContent: "CSV" });
      button.dataset.csv = "";
      button.setAttribute("aria-label", `Save the table as CSV: ${place.dataset.csvOf}`);
      place.append(button);
    }
  }
  function saveTable(button) {
    const place = button.parentElement.previousElementSibling;
    const table = place.matches("table") ? place : one("table", place);
    const lines = [...table.rows].map((row) => [...row.cells].map((part) => quote(cell(textOf(part)))).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`\ufeff${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    link.download = `${document.title.split(" · ")[0].toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  // The palette for finding pages opens with Ctrl K or with a button that is hidden without scripts.
  const palette = document.getElementById("palette");
  function openPalette() {
    if (!palette || palette.open) return;
    palette.showModal();
    one("input", palette).select();
  }
  function narrow() {
    const wanted = one("input", palette).value.trim();
    for (const item of all("#jump-list li", palette)) item.hidden = !item.textContent.toLowerCase().includes(wanted.toLowerCase());
    clearTimeout(narrow.timer);
    const found = document.getElementById("jump-found");
    if (wanted.length < 2) return found.replaceChildren();
    narrow.timer = setTimeout(async () => {
      const answer = await fetch(`/jump/found?q=${encodeURIComponent(wanted)}`, { headers: { Accept: "text/html" } });
      if (answer.ok && !answer.redirected && one("input", palette).value.trim() === wanted) {
        found.innerHTML = await answer.text();
      }
    }, 150);
  }
  function move(by) {
    const links = all("a", palette).filter((link) => link.offsetParent !== null);
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  }
  if (palette) {
    for (const button of all('[data-open="palette"]')) {
      button.hidden = false;
      button.addEventListener("click", () => {
        document.getElementById("navigation")?.hidePopover?.();
        openPalette();
      });
    }
    one("input", palette).addEventListener("input", narrow);
    palette.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") move(1);
      else if (event.key === "ArrowUp") move(-1);
      else if (event.key === "Enter" && document.activeElement.tagName === "INPUT") {
        const first = all("a", palette).find((link) => link.offsetParent !== null);
        if (!first) return;
        first.click();
      } else return;
      event.preventDefault();
    });
    palette.addEventListener("click", (event) => {
      if (event.target === palette) palette.close();
    });
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && palette) {
      event.preventDefault();
      openPalette();
    }
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    const csv = event.target.closest("[data-csv]");
    if (csv) saveTable(csv);
  });
  // The stream replaces live parts of the page. While a mouse button or finger presses on a
  // part, this part waits: if it were replaced, the click would be lost. A list with data-hold
  // also waits while a person reads the list: the pointer or the focus is on the list or its
  // button, or the page is scrolled. Such a list also waits while more than pace rows come in
  // span milliseconds, because rows that move so fast cannot be read. While a list waits, the
  // page does not say that it is live. A part also waits while the pointer is on a control that the
  // part would replace or move, or approaches one. Opened elements stay open, and the focused element
  // keeps the focus.
  const held = new Map();
  const places = new WeakMap();
  const reads = ({ parentElement: list }) => list.matches(":hover") || list.contains(document.activeElement) || scrollY > 8;
  const pace = 10;
  const span = 10000;
  const arrivals = new Map();
  const recent = (place) => (arrivals.get(place) ?? []).filter((at) => Date.now() - at < span);
  const fast = (place) => rowsOf(place).length > 0 && recent(place).length > pace;
  const busy = (place, data) =>
    place.matches(":active") || (place.hasAttribute("data-hold") && (reads(place) || fast(place))) || takesClick(place, data);

  // Reports whether new content of a part would take a click that is meant for something else.
  let pointer = { at: -Infinity, y: 0 };
  document.addEventListener("pointermove", (event) => (pointer = { at: event.timeStamp, y: event.clientY }));
  function takesClick(place, data) {
    if (!place.checkVisibility()) return false;
    const control = one("[data-live] :is(a, button, summary, input, select, textarea, label):hover");
    if (control && place.contains(control)) return true;
    const follows = control && place.compareDocumentPosition(control) & Node.DOCUMENT_POSITION_FOLLOWING;
    const comes = performance.now() - pointer.at < 500 && pointer.y > place.getBoundingClientRect().top;
    return Boolean(follows || comes) && heightWith(place, data) !== place.offsetHeight;
  }
  function heightWith(place, data) {
    const probe = place.cloneNode(false);
    probe.removeAttribute("id");
    probe.innerHTML = data;
    keepOpen(probe, openIn(place));
    probe.style.cssText = `position: absolute; visibility: hidden; width: ${place.getBoundingClientRect().width}px`;
    place.after(probe);
    const height = probe.offsetHeight;
    probe.remove();
    return height;
  }
  const openIn = (place) => all("summary", place).map((summary) => summary.parentElement.open);
  const keepOpen = (place, open = []) => all("summary", place).forEach((summary, i) => (summary.parentElement.open = open[i] ?? false));
  const showHeld = () => document.documentElement.toggleAttribute("data-held", [...held.keys()].some((place) => place.hasAttribute("data-hold")));
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const place = event.target;
    const rows = place.hasAttribute("data-hold") ? rowsOf(new DOMParser().parseFromString(event.detail.data, "text/html")) : [];
    arrive(place, rows);
    if (busy(place, event.detail.data)) {
      held.set(place, event.detail.data);
      count(place, rows);
      showHeld();
      event.preventDefault();
      return;
    }
    held.delete(place);
    showHeld();
    countAgain(place);
    remember(place);
  });

  // The rows that came while a list with data-hold waited.
  const news = new Map();
  const rowsOf = (root) => all("tbody tr[id]", root).map((row) => row.id);
  function arrive(place, rows) {
    const seen = news.get(place)?.seen ?? new Set(rowsOf(place));
    const now = Date.now();
    arrivals.set(place, [...recent(place), ...rows.filter((id) => !seen.has(id)).map(() => now)]);
  }
  function count(place, rows) {
    if (!place.hasAttribute("data-hold")) return;
    const state = news.get(place) ?? { seen: new Set(rowsOf(place)), fresh: 0, more: false };
    news.set(place, state);
    const fresh = rows.filter((id) => !state.seen.has(id));
    state.more ||= rows.length > 0 && fresh.length === rows.length;
    state.fresh += fresh.length;
    for (const id of fresh) state.seen.add(id);
    const button = one("[data-release]", place.parentElement);
    const many = rows.length > 0 ? `${state.more ? "At least " : ""}${state.fresh.toLocaleString("en-US")} new` : "Changed";
    button.textContent = `${many}: show`;
    button.parentElement.hidden = rows.length > 0 && state.fresh === 0;
  }
  function countAgain(place) {
    if (!news.delete(place)) return;
    one("[data-release]", place.parentElement).parentElement.hidden = true;
  }
  document.addEventListener("htmx:sseMessage", (event) => restore(event.target));
  function remember(place) {
    places.set(place, { open: openIn(place), focus: all("summary", place).indexOf(document.activeElement) });
  }
  function restore(place) {
    const was = places.get(place);
    keepOpen(place, was?.open);
    readyTables();
    all("summary", place)[was?.focus]?.focus({ preventScroll: true });
  }
  function release(every) {
    for (const [place, data] of held) {
      if (!every && busy(place, data)) continue;
      held.delete(place);
      showHeld();
      countAgain(place);
      remember(place);
      window.htmx.swap(place, data, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 20 });
      restore(place);
    }
  }
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => setTimeout(release));
  setInterval(release, 250);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-release]")) return;
    release(true);
    scrollTo({ top: 0, behavior: "instant" });
  });

  // Prevents sending a form twice, which could create an object twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent !== undefined) return event.preventDefault();
    form.dataset.sent = "";
    setTimeout(() => delete form.dataset.sent, 4000);
  });
  // A control with data-apply submits its form when its value changes.
  document.addEventListener("change", (event) => {
    if (event.target.closest("[data-apply]")) event.target.form.requestSubmit();
  });
  // Signing out removes what the editor of drafts keeps in the tab. This happens when the page
  // is left, because the person can cancel before.
  let signsOut = false;
  document.addEventListener("submit", (event) => (signsOut = event.target.getAttribute("action") === "/sign-out"));
  document.addEventListener("input", () => (signsOut = false));
  addEventListener("pagehide", () => {
    if (!signsOut) return;
    try {
      for (const key of Object.keys(sessionStorage)) if (key.startsWith("draft:")) sessionStorage.removeItem(key);
    } catch {
      // the browser stores nothing for this site
    }
  });
  // Opened elements stay open when their part of the page is replaced, if the
  // button has the attribute data-keep-open.
  let wasOpen = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    const keeps = event.detail.requestConfig.elt.hasAttribute("data-keep-open");
    wasOpen = keeps ? all("details[open][id]", event.detail.target).map((part) => part.id) : [];
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const id of wasOpen) document.getElementById(id)?.setAttribute("open", "");
    wasOpen = [];
  });
  document.addEventListener("htmx:load", (event) => {
    tellAll(event.detail.elt);
    readyCopies(event.detail.elt);
    readyTables();
  });
  // Scrolls a row of tabs that is wider than the page to the open tab, in browsers whose style sheets cannot. It does not scroll
  // a row that is scrolled already.
  if (!CSS.supports("scroll-initial-target", "nearest")) {
    for (const tab of all(".tabs a[aria-current]")) {
      const row = tab.closest(".tabs");
      if (row.scrollLeft === 0) row.scrollLeft = tab.getBoundingClientRect().right - row.getBoundingClientRect().right + row.clientWidth / 4;
    }
  }
  tellAll();
  readyCopies();
  readyTables();
  setInterval(tellAll, 30000);
})();
