// Forms that create or use a passkey. The server puts the options of WebAuthn into the form, and
// gets the response of the browser in its field "response".
(() => {
  "use strict";
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replaceAll("+", "-")
      .replaceAll("/", "_")
      .replaceAll("=", "");

  // ask shows the dialog of the browser and returns its response as JSON.
  async function ask(create, { publicKey }) {
    publicKey.challenge = bytes(publicKey.challenge);
    const list = (create ? publicKey.excludeCredentials : publicKey.allowCredentials) ?? [];
    for (const credential of list) credential.id = bytes(credential.id);
    if (create) publicKey.user.id = bytes(publicKey.user.id);
    const made = await navigator.credentials[create ? "create" : "get"]({ publicKey });
    const response = { clientDataJSON: text(made.response.clientDataJSON) };
    if (create) {
      response.attestationObject = text(made.response.attestationObject);
      response.transports = made.response.getTransports?.() ?? [];
    } else {
      response.authenticatorData = text(made.response.authenticatorData);
      response.signature = text(made.response.signature);
      if (made.response.userHandle) response.userHandle = text(made.response.userHandle);
    }
    return JSON.stringify({
      id: made.id,
      rawId: text(made.rawId),
      type: made.type,
      authenticatorAttachment: made.authenticatorAttachment ?? undefined,
      clientExtensionResults: made.getClientExtensionResults(),
      response,
    });
  }

  if (!window.PublicKeyCredential) return;
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const button = form.querySelector("button");
    const failed = form.querySelector("[data-passkey-failed]");
    form.querySelector("[data-passkey-missing]").hidden = true;
    button.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      failed.hidden = true;
      button.disabled = true;
      try {
        form.elements.response.value = await ask(form.dataset.passkey === "create", JSON.parse(form.dataset.options));
        form.submit();
      } catch {
        failed.hidden = false; // the person closed the dialog, or there is no passkey
        button.disabled = false;
      }
    });
  }
})();
