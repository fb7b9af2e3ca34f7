// The editor of a draft. The server does not store a draft before it is saved. The browser tab
// keeps an unsaved draft until it is saved, discarded, or published, or until the person signs out.
(() => {
  "use strict";
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const plan = location.pathname.match(/^\/plans\/[^/]+/)[0];
  const key = `draft:${document.body.dataset.person}:${plan}`;
  const draft = () => document.getElementById("draft");
  const unsaved = () => draft() && one("[data-unsaved]:not([hidden])", draft());
  let leaves = false; // the form is being sent or discarded
  let offered = false; // the page offers kept values, and its fields wait for the choice

  const stored = (use) => {
    try {
      return use(sessionStorage);
    } catch {
      return null; // the browser stores nothing for this site, or the draft is too large
    }
  };
  const kept = () => stored((s) => JSON.parse(s.getItem(key)));
  const put = (value) => stored((s) => s.setItem(key, JSON.stringify(value)));
  const forget = () => stored((s) => s.removeItem(key));

  function keep() {
    if (offered) return;
    one("[data-unsaved]", draft()).hidden = false;
    const { action, elements } = draft();
    put({ action, revision: elements.revision.value, fields: [...new FormData(draft())] });
  }
  function restore() {
    const { action, fields } = kept();
    const form = Object.assign(document.createElement("form"), { method: "post", action, hidden: true });
    for (const [name, value] of [...fields, ["do", "redraw"]]) {
      form.append(Object.assign(document.createElement("textarea"), { name, value }));
    }
    document.body.append(form);
    leaves = true;
    form.submit();
  }
  function open() {
    leaves = false;
    if (!draft()) return;
    if (unsaved()) return keep();
    const value = kept();
    offered = value !== null;
    one("[data-kept]", draft()).hidden = !offered;
    one("[data-kept-older]", draft()).hidden = !offered || value.revision === draft().elements.revision.value;
    for (const part of all(".editor-bar > .button, .editor-bar ~ *", draft())) part.inert = offered;
  }

  // A save or a publication marks what it sends. The next page shows whether it succeeded.
  const value = kept();
  if (value?.sent) {
    const succeeded = location.pathname.endsWith("/rollout") || new URLSearchParams(location.search).get("done") === "draft-saved";
    if (succeeded) forget();
    else put({ ...value, sent: false });
  }
  for (const notice of all("[data-publish-kept]")) notice.hidden = kept() === null;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const publishes = form.getAttribute("action") === `${plan}/publish`;
    if (event.defaultPrevented || (form !== draft() && !publishes)) return;
    leaves = true;
    if (kept() && (publishes || event.submitter?.value === "save")) put({ ...kept(), sent: true });
  });

  for (const name of ["input", "change"]) {
    document.addEventListener(name, (event) => {
      if (event.target.form && event.target.form === draft()) keep();
    });
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-restore]")) restore();
    if (!event.target.closest("[data-discard]")) return;
    leaves = true;
    forget();
  });
  addEventListener("beforeunload", (event) => {
    if (unsaved() && !leaves) event.preventDefault();
  });
  open();
  addEventListener("pageshow", open);
  // After a button has changed the form, the field to which it leads gets the focus. The field is scrolled to the middle
  // of the screen, where the sticky bar does not cover it. The draft is kept after that, because this takes time: a form
  // of a hundred policies has thousands of fields.
  document.addEventListener("htmx:afterSettle", () => {
    leaves = false;
    if (!draft()) return;
    one("[data-unsaved]", draft()).hidden = false;
    setTimeout(() => draft() && keep());
    const field = one("[autofocus]", draft());
    if (!field) return;
    field.removeAttribute("autofocus");
    field.focus({ preventScroll: true });
    field.scrollIntoView({ block: "center", behavior: "instant" });
  });
  // To add a policy, the server needs only the slugs of the other policies. Its response has only the fields of the new one.
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.elt.id !== "do-add-policy") return;
    for (const name of new Set(detail.formData.keys())) {
      if (name !== "revision" && name !== "do" && !/^policies\.\d+\.slug$/.test(name)) detail.formData.delete(name);
    }
  });

  // The response to a button that changes the form replaces the whole form. This would lose text that was typed after
  // the request, and a click whose button is replaced before the pointer is up. In these cases, the response is dropped,
  // and the button is pressed again with the present form. This is possible because the server stores nothing.
  const sent = new WeakMap(); // the form of each request
  const content = () => JSON.stringify([...new FormData(draft())]);
  let pressed = false;
  for (const name of ["pointerdown", "pointerup", "pointercancel"]) {
    addEventListener(name, () => (pressed = name === "pointerdown"), true);
  }
  document.addEventListener("htmx:beforeRequest", ({ detail, target }) => {
    if (target.form && target.form === draft() && detail.target === draft()) sent.set(detail.xhr, content());
  });
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target !== draft() || !sent.has(detail.xhr)) return;
    if (!pressed && sent.get(detail.xhr) === content()) return;
    detail.shouldSwap = false;
    const button = detail.requestConfig.elt;
    const again = () => setTimeout(() => button.isConnected && !leaves && button.click());
    if (pressed) addEventListener("pointerup", again, { once: true });
    else again();
  });

  // The sentences that describe limits in words follow the typing. For this, the server renders only the typed policy.
  const typed = new Set();
  let timer;
  document.addEventListener("input", (event) => {
    const policy = event.target.closest("#draft .policy-fields");
    if (!policy) return;
    typed.add(policy.id);
    clearTimeout(timer);
    timer = setTimeout(readAloud, 250);
  });
  async function readAloud() {
    for (const id of typed) {
      typed.delete(id);
      const body = new URLSearchParams({ revision: draft().elements.revision.value, do: "redraw" });
      for (const [name, value] of new FormData(draft())) {
        if (name.startsWith(`${id}.`)) body.append(`policies.0${name.slice(id.length)}`, value);
      }
      const answer = await fetch(draft().getAttribute("action"), { method: "POST", body, headers: { Accept: "text/html" } });
      const policy = document.getElementById(id);
      if (!answer.ok || answer.redirected || !policy) return;
      const drawn = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("policies.0");
      if (typed.has(id)) continue; // it changed in between
      const sentences = all("[data-aloud]", drawn);
      all("[data-aloud]", policy).forEach((place, i) => (place.textContent = sentences[i]?.textContent ?? ""));
    }
  }
})();
