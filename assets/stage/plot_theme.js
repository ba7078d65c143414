// The stage's own colours, type and sizes, as the plots need them: Plotly does not follow a style sheet.
SpecViz.plotTheme = (() => {
  const COLORS = {
    ink: "--ink", muted: "--muted", line: "--line", ground: "--ground", target: "--accepted", targetTint: "--accepted-tint",
    drafter: "--part-draft", drafterTint: "--part-other", verify: "--part-verify", other: "--part-other",
  };
  const FONT_SHARE = 0.8; // of the stage's own size

  /** The theme that holds for `node` now. */
  function themeOf(node) {
    const style = getComputedStyle(node);
    const theme = { family: style.fontFamily, size: Math.round(parseFloat(style.fontSize) * FONT_SHARE * 10) / 10 };
    for (const [name, variable] of Object.entries(COLORS)) theme[name] = style.getPropertyValue(variable).trim();
    return theme;
  }

  /** Calls back whenever light may have become dark, or dark light. */
  function onChange(node, callback) {
    const observer = new MutationObserver(callback);
    for (const watched of [document.documentElement, document.body]) observer.observe(watched, { attributeFilter: ["class", "data-theme"] });
    observer.observe(node.closest(".sv-stage") || node, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", callback);
  }

  return { themeOf, onChange };
})();
