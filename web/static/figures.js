// Draws the JSON blocks of a page with plotly. Colours of text and grid come from the style sheet,
// so one figure serves dark and light.
"use strict";
(() => {
  const plots = [...document.querySelectorAll("[data-figure]")];
  const config = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(name).trim();
    return { ink: named("--ink"), muted: named("--muted"), line: named("--line"), card: named("--card") };
  };

  // from this width on, panels of a figure may stand side by side
  const WIDE_PX = 880;

  const themed = (layout, width) => {
    const { ink, muted, line, card } = colours();
    const wide = width >= WIDE_PX && layout.meta ? layout.meta.wide : {};
    const drawn = structuredClone({ ...layout, ...wide });
    drawn.font = { ...drawn.font, color: ink };
    drawn.hoverlabel = { bgcolor: card, bordercolor: line, font: { color: ink, size: 12 }, align: "left" };
    for (const [name, axis] of Object.entries(drawn)) {
      if (!/^[xy]axis\d*$/.test(name)) continue;
      axis.gridcolor = line;
      axis.linecolor = line;
      axis.tickcolor = line;
      axis.fixedrange = true;
      axis.tickfont = { color: name.startsWith("x") ? muted : ink, ...axis.tickfont };
      if (axis.title) axis.title.font = { color: muted, size: 11, ...axis.title.font };
    }
    return drawn;
  };

  const draw = (plot) => {
    const source = document.getElementById(plot.dataset.figure);
    const figure = JSON.parse(source.textContent);
    const { ink } = colours();
    for (const trace of figure.data) if (trace.meta === "rule") trace.line.color = ink;
    const layout = themed(figure.layout, plot.clientWidth);
    return Plotly.react(plot, figure.data, layout, config).then(() => {
      plot.dataset.drawn = "yes";
      plot.style.minHeight = "";
    });
  };

  const tools = (plot) => {
    const bar = plot.parentElement.querySelector(".tools");
    if (!bar) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small";
    button.textContent = "Save SVG";
    button.addEventListener("click", () =>
      Plotly.downloadImage(plot, {
        format: "svg",
        filename: plot.dataset.filename || plot.dataset.figure,
        width: Math.max(plot.clientWidth, 700),
        height: plot.clientHeight,
      }),
    );
    bar.append(button);
  };

  if (typeof Plotly === "undefined") return;
  for (const plot of plots) draw(plot).then(() => tools(plot));
  const redraw = () => plots.forEach(draw);
  let timer = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 200);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
