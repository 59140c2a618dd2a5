// Follows a running job: events change the grid at once, the server's own fragment fills in numbers.
// Nothing moves: cells keep their size, and the report never replaces what somebody is reading.
"use strict";
(() => {
  const live = document.querySelector("[data-events]");
  if (!live || typeof EventSource === "undefined") return;
  const { signs, words } = JSON.parse(document.getElementById("live-words").textContent);
  const log = document.getElementById("log");
  const LOG_LINES = 400;
  const REFRESH_MS = 400;
  // the stream tells the whole story from its start; the page was rendered up to here
  const newest = Number(live.dataset.newest);
  let waiting = false;
  let ended = false;

  let cost = 0;

  const refresh = async () => {
    waiting = false;
    const began = performance.now();
    const answer = await fetch(live.dataset.fragment, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    cost = performance.now() - began;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      if (!old || old.outerHTML === part.outerHTML) continue;
      old.className = part.className;
      if (old instanceof HTMLProgressElement) {
        old.value = part.value;
        old.max = part.max;
      } else old.replaceChildren(...document.importNode(part, true).childNodes);
    }
  };

  const later = () => {
    if (waiting) return;
    waiting = true;
    // a large job must not keep the service busy: at most a tenth of the time is spent refreshing
    setTimeout(() => refresh().catch(() => {}), Math.max(REFRESH_MS, 9 * cost));
  };

  const onCell = (event) => {
    const cell = JSON.parse(event.data);
    const place = document.getElementById(`cell-${cell.position}`);
    if (place) {
      const status = cell.outcome || cell.state;
      place.className = `s-${status}`;
      const sign = place.querySelector("b");
      const text = place.querySelector(".words");
      const value = place.querySelector(".value");
      if (sign) sign.textContent = signs[status] || "?";
      if (text) text.textContent = words[status] || status;
      if (value && !cell.outcome && cell.visits_total)
        value.textContent = `${cell.visits_done} of ${cell.visits_total} visits`;
    }
    later();
  };

  const onLog = (event) => {
    if (!log) return;
    const { line } = JSON.parse(event.data);
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
    const lines = log.textContent === "" ? [] : log.textContent.split("\n");
    lines.push(line);
    log.textContent = lines.slice(-LOG_LINES).join("\n");
    document.getElementById("log-empty")?.setAttribute("hidden", "");
    if (atEnd) log.scrollTop = log.scrollHeight;
  };

  const onDone = async () => {
    ended = true;
    source.close();
    await refresh().catch(() => {});
    if (window.scrollY < 40 && !document.querySelector("dialog[open]")) {
      location.reload();
      return;
    }
    document.getElementById("report-ready").hidden = false;
  };

  if (log) log.scrollTop = log.scrollHeight;
  const source = new EventSource(live.dataset.events);
  const fresh = (handle) => (event) => {
    if (Number(event.lastEventId) > newest) handle(event);
  };
  source.addEventListener("cell", fresh(onCell));
  source.addEventListener("log", fresh(onLog));
  source.addEventListener("state", fresh(later));
  source.addEventListener("done", onDone);
  source.addEventListener("error", () => {
    const note = document.getElementById("connection");
    if (note && !ended) note.hidden = source.readyState === EventSource.OPEN;
  });
  source.addEventListener("open", () => {
    const note = document.getElementById("connection");
    if (note) note.hidden = true;
  });
  document.getElementById("report-ready")?.addEventListener("click", () => location.reload());
})();
