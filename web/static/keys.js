// Keys: "/" goes to the search field, "?" shows the help. Nothing needs them.
"use strict";
(() => {
  const help = document.getElementById("help");
  const typing = (node) =>
    node instanceof HTMLElement &&
    (node.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "/") {
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
