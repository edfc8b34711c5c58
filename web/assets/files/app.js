// What the console does beyond htmx. Every page works without this file.
"use strict";

// Uploads: send the file as the raw body, with its length, and show how far it is.
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return n.toFixed(i > 1 ? 1 : 0) + " " + units[i];
}

function seconds(s) {
  if (!isFinite(s)) return "";
  s = Math.round(s);
  if (s < 90) return s + " s";
  const m = Math.round(s / 60);
  return m < 90 ? m + " min" : (m / 60).toFixed(1) + " h";
}

function hexToBase64(hex) {
  return btoa(String.fromCharCode(...hex.match(/../g).map((h) => parseInt(h, 16))));
}

// A refusal stands at the field that it is about, as it does on a page that the appliance made.
function mark(form, member, message) {
  for (const old of form.querySelectorAll(".wrong")) old.remove();
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  const field = form.elements[{ "Content-Digest": "sha256", sha512: "sha256", "Bcd-Image-Format": "format" }[member] || member];
  const under = field && document.getElementById(field.getAttribute("aria-describedby"));
  if (!under) return;
  const wrong = document.createElement("div");
  wrong.className = "wrong";
  wrong.textContent = message;
  under.prepend(wrong);
  field.setAttribute("aria-invalid", "true");
  field.focus();
}

function upload(form) {
  const file = form.elements.file.files[0];
  const name = form.elements.name.value.trim();
  const digest = form.elements.sha256.value.trim().toLowerCase();
  if (!file || !name) return false;
  const box = form.querySelector("[data-upload]");
  const bar = box.querySelector("progress");
  const text = box.querySelector("[data-text]");
  const button = form.querySelector("button[type=submit]");
  const cancel = box.querySelector("button");
  const xhr = new XMLHttpRequest();
  const start = performance.now();
  xhr.open("PUT", "/api/v1/images/" + encodeURIComponent(name));
  if (form.elements.format.value) xhr.setRequestHeader("Bcd-Image-Format", form.elements.format.value);
  if (/^([0-9a-f]{64}|[0-9a-f]{128})$/.test(digest)) xhr.setRequestHeader("Content-Digest", (digest.length === 64 ? "sha-256" : "sha-512") + "=:" + hexToBase64(digest) + ":");
  else if (digest) xhr.setRequestHeader("Content-Digest", "sha-256=" + encodeURIComponent(digest)); // refused: a slip must not pass for no digest
  const end = (message) => {
    text.textContent = message;
    button.disabled = false;
    cancel.hidden = true;
    window.removeEventListener("beforeunload", stay);
  };
  const stay = (e) => e.preventDefault();
  xhr.upload.onprogress = (e) => {
    const rate = e.loaded / ((performance.now() - start) / 1000);
    bar.max = file.size;
    bar.value = e.loaded;
    text.textContent = e.loaded >= file.size ? "Sent. The appliance is storing it…" :
      bytes(e.loaded) + " of " + bytes(file.size) + " · " + bytes(rate) + "/s · " + seconds((file.size - e.loaded) / rate) + " left";
  };
  xhr.onload = () => {
    if (xhr.status === 201) { window.removeEventListener("beforeunload", stay); location.assign("/images"); return; }
    let error = { message: "The upload failed with status " + xhr.status + "." };
    try { error = JSON.parse(xhr.responseText).error; } catch { /* not ours */ }
    mark(form, error.field, [error.message, error.wayOut].filter(Boolean).join(": "));
    end([error.field, error.message].filter(Boolean).join(": ") + (error.wayOut ? " — " + error.wayOut : ""));
  };
  xhr.onerror = () => end("The connection broke. Nothing was kept; upload the image again.");
  xhr.onabort = () => end("The upload was stopped. Nothing was kept.");
  cancel.onclick = () => xhr.abort();
  cancel.hidden = false;
  box.hidden = false;
  button.disabled = true;
  window.addEventListener("beforeunload", stay);
  xhr.send(file);
  return true;
}

document.addEventListener("submit", (e) => {
  if (e.target.matches("form[data-raw-upload]") && upload(e.target)) e.preventDefault();
});

// Batches: one box chooses all rows.
document.addEventListener("change", (e) => {
  if (!e.target.matches("input[data-all]")) return;
  for (const box of document.querySelectorAll("input[name=id]")) box.checked = e.target.checked;
});

// Lists: enter the chosen filter as soon as it is chosen.
document.addEventListener("change", (e) => {
  if (e.target.matches("select[data-submit]")) e.target.form.requestSubmit();
});

// Times: the page carries UTC; show them in the reader's zone.
function localTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]:not([title])")) {
    const d = new Date(t.dateTime);
    if (isNaN(d)) continue;
    t.title = d.toLocaleString();
    if (t.dataset.clock === undefined) continue;
    const today = d.toDateString() === new Date().toDateString();
    t.textContent = (today ? "" : d.toLocaleDateString([], { day: "numeric", month: "short" }) + " ") + d.toLocaleTimeString([], { hour12: false });
  }
}
document.addEventListener("DOMContentLoaded", () => localTimes(document));
document.addEventListener("htmx:load", (e) => localTimes(e.target));

// Streams: say so when the appliance is away for longer than a page takes to load itself anew.
let lost;
function away(yes) {
  clearTimeout(lost);
  const show = () => { const note = document.getElementById("lost"); if (note) note.hidden = !yes; };
  if (yes) lost = setTimeout(show, 1500); else show();
}
document.addEventListener("htmx:sseError", () => away(true));
document.addEventListener("htmx:sseOpen", () => away(false));
// What a page was about may be gone when it loads itself anew: show what the appliance says then.
document.addEventListener("htmx:responseError", (e) => { if (e.detail.target && e.detail.target.id === "main") location.reload(); });

// A page that loads itself anew keeps what is being typed into it, as far as its fields are still there.
let typed = [];
function changed(field) {
  if (field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (field.tagName === "SELECT") return [...field.options].some((o) => o.selected !== o.defaultSelected);
  return field.value !== field.defaultValue;
}
document.addEventListener("htmx:beforeSwap", (e) => {
  if (!e.detail.target || e.detail.target.id !== "main") return;
  typed = [...e.detail.target.querySelectorAll("input[id]:not([type=file]), textarea[id], select[id]")].filter((f) => f === document.activeElement || changed(f))
    .map((f) => ({ id: f.id, value: f.value, checked: f.checked, focused: f === document.activeElement }));
});
document.addEventListener("htmx:afterSettle", () => {
  for (const was of typed) {
    const field = document.getElementById(was.id);
    if (!field || field.tagName === "SELECT" && ![...field.options].some((o) => o.value === was.value)) continue;
    if (field.type === "checkbox") field.checked = was.checked; else field.value = was.value;
    for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (was.focused) field.focus();
  }
  typed = [];
});

// Narrow windows: the navigation is one line; show the entry of this page.
document.addEventListener("DOMContentLoaded", () => {
  const here = document.querySelector("nav [aria-current]");
  const nav = here && here.closest("nav");
  if (nav && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - 24;
});
