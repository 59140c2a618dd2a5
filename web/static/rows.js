// Opens rows of a comparison in place. Without scripts the link inside leads to a page of its own.
"use strict";
(() => {
  for (const row of document.querySelectorAll("details[data-fragment]")) {
    row.addEventListener("toggle", async () => {
      if (!row.open || row.dataset.filled) return;
      row.dataset.filled = "yes";
      const place = row.querySelector("[data-place]");
      try {
        const answer = await fetch(`${row.dataset.fragment}&part=1`, { headers: { Accept: "text/html" } });
        if (!answer.ok) throw new Error(answer.statusText);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        place.replaceChildren(...document.importNode(fresh.body, true).childNodes);
      } catch {
        // the link stays where it is, and another try is free
        delete row.dataset.filled;
      }
    });
  }
})();
