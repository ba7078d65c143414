// The only door to the DOM: elements are made by name, text is text. Nothing is ever parsed as HTML.
SpecViz.dom = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const ICONS = {
    reset: "M6 5h2.5v14H6zM20 5v14L9.5 12z",
    play: "M7 4.5v15L20 12z",
    pause: "M6 5h4.5v14H6zM13.5 5H18v14h-4.5z",
    back: "M15 5v14L5.5 12zM16.5 5H19v14h-2.5z",
    forward: "M9 5v14l9.5-7zM5 5h2.5v14H5z",
    save: "M10.8 3h2.4v8.2l3-3L18 9.9l-6 6-6-6 1.8-1.7 3 3zM4 18h16v3H4z",
    full: "M4 4h6v2.4H6.4V10H4zM14 4h6v6h-2.4V6.4H14zM4 14h2.4v3.6H10V20H4zM17.6 14H20v6h-6v-2.4h3.6z",
  };

  /** el("p", {class: "sv-x", dataset: {a: 1}, style: {"--n": 3}, onClick: f}, "text", node, …) */
  function el(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) setAttribute(node, key, value);
    append(node, children);
    return node;
  }

  function setAttribute(node, key, value) {
    if (value === null || value === undefined || value === false) return;
    if (key === "dataset") Object.entries(value).forEach(([name, item]) => setData(node, name, item));
    else if (key === "style") Object.entries(value).forEach(([name, item]) => item !== null && node.style.setProperty(name, item));
    else if (key.startsWith("on")) node.addEventListener(key.slice(2).toLowerCase(), value);
    else node.setAttribute(key, value === true ? "" : value);
  }

  function append(node, children) {
    for (const child of children.flat()) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child.nodeType ? child : document.createTextNode(String(child)));
    }
  }

  function setData(node, name, value) {
    if (value === null || value === undefined || value === false) delete node.dataset[name];
    else if (node.dataset[name] !== String(value)) node.dataset[name] = String(value);
  }

  function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function icon(name) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
  }

  /** A token's text, with blanks, line ends and bytes made visible. */
  function tokenText(token, className = "sv-token") {
    const special = token.special ? "special" : null;
    const partial = SpecViz.pieces.isPartial(token) ? "partial" : null;
    const pieces = SpecViz.pieces.piecesOf(token).map((piece) =>
      piece.kind === "text" ? piece.text : el("i", { class: "sv-sign", dataset: { kind: piece.kind } }, piece.text),
    );
    return el("bdi", { class: className, dataset: { form: special || partial } }, pieces);
  }

  return { el, setData, setText, icon, tokenText };
})();
