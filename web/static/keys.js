// Keys: "/" goes to the search field, "?" shows the help, "g" and a letter goes to a page. Nothing
// needs them.
"use strict";
(() => {
  const help = document.getElementById("help");
  const typing = (node) =>
    node instanceof HTMLElement &&
    (node.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName));

  const places = { o: "/", s: "/shapes", p: "/pareto", h: "/history", c: "/compare" };
  const GO_WITHIN_MS = 1200;
  let going = 0;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "g") {
      going = event.timeStamp;
    } else if (going && event.timeStamp - going < GO_WITHIN_MS && places[event.key]) {
      location.assign(places[event.key]);
    } else if (event.key === "/") {
      const field = document.querySelector("input[type=search]");
      if (field) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    } else if (event.key === "?" && help) {
      event.preventDefault();
      if (help.open) help.close();
      else help.showModal();
    }
  });

  for (const button of document.querySelectorAll("[data-opens]")) {
    const target = document.getElementById(button.dataset.opens);
    button.hidden = !target;
    if (target) button.addEventListener("click", () => target.showModal());
  }

  // copying needs a secure context or loopback; elsewhere the text is there to be selected
  for (const button of document.querySelectorAll("[data-copies]")) {
    const source = document.getElementById(button.dataset.copies);
    if (!source || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const before = button.textContent;
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = before; }, 1600);
    });
  }
})();
