// Shows news as they come. Every page works without this.
"use strict";

(() => {
  const note = document.getElementById("note");
  const live = () => document.querySelector("[data-live]");

  const say = (text) => {
    note.textContent = text;
    note.hidden = text === "";
  };

  // What somebody is filling in is not taken away from under their hands.
  const isInUse = (region) =>
    region.contains(document.activeElement) || region.querySelector("input[name=key]:checked") !== null;

  const refresh = async () => {
    const region = live();
    if (region === null || document.hidden) return;
    if (isInUse(region)) {
      say("There is news. Load the page again to see it.");
      return;
    }
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok || answer.redirected) {
      location.reload();
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (fresh !== null) region.replaceWith(document.adoptNode(fresh));
    say("");
  };

  const quietly = () => refresh().catch(() => say("digestd does not answer. What you see may be old."));

  if (live() !== null) {
    const source = new EventSource("/events");
    source.addEventListener("changed", quietly);
    source.addEventListener("away", () => say("The ledger does not answer. What you see may be old."));
    source.addEventListener("error", () => say("digestd does not answer. What you see may be old."));
    source.addEventListener("open", () => say(""));
    document.addEventListener("visibilitychange", quietly);
  }

  document.addEventListener("change", (event) => {
    if (!event.target.matches("input[data-all]")) return;
    for (const box of event.target.form.querySelectorAll("input[name=key]")) box.checked = event.target.checked;
  });
})();
