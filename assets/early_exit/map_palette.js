// The map's colours: the stage's own, from unsure to sure, each with the ink that can be read on it.
SpecViz.mapPalette = (() => {
  const STEPS = 48;

  /** {fills, inks, ink, muted, line, ground, soft, same, other, focus, family, mono} as they hold for `node` now. */
  function paletteOf(node) {
    const style = getComputedStyle(node);
    const color = (name) => style.getPropertyValue(name).trim();
    const [low, high] = [rgbOf(color("--map-low")), rgbOf(color("--map-high"))];
    const inks = [color("--ink"), color("--ground")];
    const fills = Array.from({ length: STEPS + 1 }, (_, step) => mix(low, high, step / STEPS));
    return {
      fills: fills.map(cssOf),
      inks: fills.map((fill) => inks.reduce((best, ink) => (contrast(rgbOf(ink), fill) > contrast(rgbOf(best), fill) ? ink : best))),
      ink: color("--ink"), faint: color("--map-faint"), muted: color("--muted"), line: color("--line"), hatch: color("--map-hatch"), ground: color("--ground"), soft: color("--soft"),
      same: color("--correction-ink"), other: color("--rejected-ink"), focus: color("--bonus"), sans: style.fontFamily, mono: color("--mono"),
    };
  }

  /** Which step of the palette a confidence has; `lowest` is where its scale begins. */
  function stepOf(confidence, lowest) {
    return Math.round(STEPS * Math.min(1, Math.max(0, (confidence - lowest) / (1 - lowest))));
  }

  function rgbOf(hex) {
    const digits = hex.replace("#", "");
    return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  }

  const mix = (from, to, share) => from.map((part, index) => Math.round(part + (to[index] - part) * share));
  const cssOf = (rgb) => `rgb(${rgb.join(",")})`;

  function luminance(rgb) {
    const [red, green, blue] = rgb.map((part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  return { paletteOf, stepOf };
})();
