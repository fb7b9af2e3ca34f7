// Enhancements of the pages. All pages also work without this script.
"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // An EventSource for htmx that disconnects while the page is hidden, because
  // browsers open only a few connections to one host. It reconnects after errors
  // with growing delays, so that htmx never sees an error.
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
        document.documentElement.dataset.stream = "open";
        this.onopen?.(event);
      };
      source.onerror = () => {
        document.documentElement.dataset.stream = "away";
        if (source.readyState !== EventSource.CLOSED || this.wait > 600000) return;
        this.rest();
        this.timer = setTimeout(this.turn, this.wait);
        this.wait *= 2;
      };
      for (const [name, listeners] of this.heard) {
        for (const listener of listeners) source.addEventListener(name, listener);
      }
    }
    rest() {
      clearTimeout(this.timer);
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

  // The palette for finding pages opens with Ctrl K or with a button that is hidden without scripts.
  const palette = document.getElementById("palette");
  function openPalette() {
    if (!palette || palette.open) return;
    palette.showModal();
    one("input", palette).select();
  }
  function narrow() {
    const wanted = one("input", palette).value.trim().toLowerCase();
    for (const item of all("#jump-list li", palette)) item.hidden = !item.textContent.toLowerCase().includes(wanted);
    clearTimeout(narrow.timer);
    const found = document.getElementById("jump-found");
    if (wanted.length < 2) return found.replaceChildren();
    narrow.timer = setTimeout(async () => {
      const answer = await fetch(`/jump/found?q=${encodeURIComponent(wanted)}`, { headers: { Accept: "text/html" } });
      if (answer.ok && !answer.redirected && one("input", palette).value.trim().toLowerCase() === wanted) {
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
  });
  // The stream replaces live parts of the page. It waits while a mouse button or
  // finger presses on a part, because the click would be lost. Opened elements stay
  // open, and the focused element keeps the focus.
  const held = new Map();
  const places = new WeakMap();
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const place = event.target;
    if (place.matches(":active")) {
      held.set(place, event.detail.data);
      event.preventDefault();
      return;
    }
    remember(place);
  });
  document.addEventListener("htmx:sseMessage", (event) => restore(event.target));
  function remember(place) {
    const summaries = all("summary", place);
    places.set(place, { open: summaries.map((summary) => summary.parentElement.open), focus: summaries.indexOf(document.activeElement) });
  }
  function restore(place) {
    const was = places.get(place);
    all("summary", place).forEach((summary, i) => {
      summary.parentElement.open = was?.open[i] ?? false;
      if (i === was?.focus) summary.focus({ preventScroll: true });
    });
  }
  function release() {
    for (const [place, data] of held) {
      remember(place);
      window.htmx.swap(place, data, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 20 });
      restore(place);
    }
    held.clear();
  }
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => setTimeout(release));

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
  // Signing out removes what the editor of drafts keeps in the tab. It waits until the page is
  // left, because the person can still cancel.
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
  });
  // Scrolls a row of tabs that is wider than the page to the open tab.
  for (const tab of all(".tabs a[aria-current]")) {
    const row = tab.closest(".tabs");
    row.scrollLeft += tab.getBoundingClientRect().right - row.getBoundingClientRect().right + row.clientWidth / 4;
  }
  tellAll();
  readyCopies();
  setInterval(tellAll, 30000);
})();
