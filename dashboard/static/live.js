// Live updates: the server sends the changing part of a page as it would draw it, and this puts it
// in place. All pages work without it.
"use strict";
(() => {
  const part = document.getElementById("live");
  const state = document.getElementById("live-state");
  const button = document.getElementById("live-switch");
  if (!part || !state || !button || !window.EventSource) return;

  const news = document.getElementById("live-news");
  let source = null;
  let stopped = false;

  // Screen readers hear the state and the number of dead records when they change, and not each count.
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  // show keeps the focus of people who use the keyboard: their link is in the new part too.
  const show = (html) => {
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const before = part.querySelector("[data-say]")?.dataset.say;
    part.innerHTML = html;
    const now = part.querySelector("[data-say]")?.dataset.say;
    if (news && now !== before) news.textContent = now ?? "";
    if (focused === null) return;
    for (const link of part.querySelectorAll("a[href]")) {
      if (link.getAttribute("href") === focused) { link.focus({ preventScroll: true }); return; }
    }
  };

  const selecting = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const start = () => {
    if (source || stopped || document.hidden) return;
    source = new EventSource(part.dataset.events);
    source.addEventListener("open", () => say("Live."));
    source.addEventListener("live", (event) => { if (!selecting()) show(event.data); });
    source.addEventListener("error", () => {
      say(source && source.readyState === EventSource.CLOSED ? "Live updates have ended. Reload the page." : "No connection. Trying again.");
    });
  };

  const stop = () => { if (source) { source.close(); source = null; } };

  button.hidden = false;
  button.addEventListener("click", () => {
    stopped = !stopped;
    button.textContent = stopped ? "Continue updates" : "Stop updates";
    if (stopped) { stop(); say("Stopped."); } else { start(); }
  });
  // A page that nobody sees needs no stream, and browsers open few of them for a host.
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  say("Connecting.");
  start();
})();
