// Says how many results came since the page was drawn. Nothing moves: the button alone reloads.
"use strict";
(() => {
  const button = document.getElementById("newer");
  if (!button) return;
  const EVERY_MS = 20000;
  const MOST = 1000;

  const look = async () => {
    if (document.hidden) return;
    const answer = await fetch(`/newer?after=${encodeURIComponent(button.dataset.after)}`);
    if (!answer.ok) return;
    const { newer } = await answer.json();
    if (!newer) return;
    const many = newer >= MOST ? `${MOST} or more` : newer;
    button.textContent = newer === 1 ? "1 new result: show it" : `${many} new results: show them`;
    button.hidden = false;
  };

  // a service that is away for a while is asked again later
  const ask = () => look().catch(() => {});
  setInterval(ask, EVERY_MS);
  document.addEventListener("visibilitychange", ask);
  button.addEventListener("click", () => location.reload());
})();
