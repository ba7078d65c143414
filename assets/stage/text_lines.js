// A long row of tokens as a stack of short blocks. The newest blocks hold chips; the others are plain text
// until they come into sight, so that a step costs the same after five thousand tokens as after fifty.
SpecViz.textLines = (() => {
  const { el, setData } = SpecViz.dom;
  const SHORTEST = 40; // tokens of a block that a line end closes
  const LONGEST = 120;
  const ALWAYS_CHIPS = 80; // tokens at the end, and their whole blocks
  const NEAR = "80px 0px"; // around the window of the text

  const endsLine = (token) => (token.text || "").includes("\n");

  /**
   * @param node: the element that they fill
   * @param scroller: the element that scrolls
   * @param makeChip(token, index): the element of a token
   */
  function createLines(node, scroller, makeChip) {
    const blocks = []; // {from, to, node, isChips, isNear}; it is not known at first whether one is near
    const blockOf = new WeakMap();
    let shown = []; // the tokens that stand here
    const sight = new IntersectionObserver((entries) => entries.forEach(noteSight), { root: scroller, rootMargin: NEAR });

    /** Shows the first `count` of `tokens`. Tokens come and go at the end only; what stands stays untouched. */
    function show(tokens, count) {
      let same = Math.min(shown.length, count);
      while (same > 0 && shown[same - 1] !== tokens[same - 1]) same -= 1;
      if (same === count && shown.length === count) return false;
      shown = tokens.slice(0, count);
      shorten(same);
      lengthen(same);
      newestBlocks().forEach(turnToChips);
      blocks.filter((block) => block.isChips).forEach(restOutOfSight);
      return true;
    }

    const newestBlocks = () => blocks.filter((block) => block.to > shown.length - ALWAYS_CHIPS);

    function shorten(count) {
      while (blocks.length > 0 && blocks.at(-1).from >= count) discard(blocks.pop());
      const last = blocks.at(-1);
      if (!last || last.to <= count) return;
      if (last.isChips) while (last.node.childElementCount > count - last.from) last.node.lastElementChild.remove();
      last.to = count;
      if (!last.isChips) writePlain(last);
    }

    function lengthen(from) {
      for (let index = from; index < shown.length; index += 1) {
        const block = openBlock(index);
        block.to = index + 1;
        if (block.isChips) block.node.append(makeChip(shown[index], index));
      }
      blocks.filter((block) => !block.isChips && block.to > from).forEach(writePlain);
    }

    /** The block that the token at `index` belongs to: the last one, or a new one. */
    function openBlock(index) {
      const last = blocks.at(-1);
      const size = last ? index - last.from : 0;
      const isClosed = size >= LONGEST || (size >= SHORTEST && endsLine(shown[index - 1]));
      if (last && !isClosed) return last;
      const block = { from: index, to: index, node: el("span", { class: "sv-lines" }), isChips: false, isNear: null };
      block.node.dataset.plain = "1";
      blocks.push(block);
      blockOf.set(block.node, block);
      node.append(block.node);
      sight.observe(block.node);
      return block;
    }

    function discard(block) {
      sight.unobserve(block.node);
      block.node.remove();
    }

    function noteSight({ target, isIntersecting }) {
      const block = blockOf.get(target);
      block.isNear = isIntersecting;
      if (isIntersecting) turnToChips(block);
      else restOutOfSight(block);
    }

    function restOutOfSight(block) {
      if (block.isNear === false && !newestBlocks().includes(block) && !block.node.contains(document.activeElement)) writePlain(block);
    }

    function turnToChips(block) {
      if (block.isChips) return;
      block.isChips = true;
      setData(block.node, "plain", null);
      block.node.replaceChildren(...shown.slice(block.from, block.to).map((token, i) => makeChip(token, block.from + i)));
    }

    function writePlain(block) {
      block.isChips = false;
      setData(block.node, "plain", "1");
      block.node.textContent = shown.slice(block.from, block.to).map((token) => token.text ?? "").join("");
    }

    /** The chip of the token at `index`; its block is turned to chips where needed. */
    function chipAt(index) {
      const block = blocks.find((candidate) => candidate.to > index);
      if (!block) return null;
      turnToChips(block);
      return SpecViz.textLines.chipIn(block.node.children[index - block.from]);
    }

    /** The index of the token that a chip stands for. */
    function indexOf(chip) {
      const block = blockOf.get(chip.closest(".sv-lines"));
      if (!block) return -1;
      return block.from + [...block.node.children].findIndex((child) => child.contains(chip));
    }

    return { node, show, chipAt, indexOf, get count() { return shown.length; } };
  }

  const chipIn = (child) => (child.matches(".sv-chip") ? child : child.querySelector(".sv-chip"));

  return { createLines, chipIn };
})();
