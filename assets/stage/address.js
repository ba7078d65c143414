// The page's address as its state: settings and round in the query, the prompt in the fragment, which no
// server ever sees. So a teacher can hand out a link, and a reload shows what was shown.
SpecViz.address = (() => {
  const PROMPT_PARTS = ["prompt", "system"]; // these go into the fragment

  /** {name: text} of an address' query and fragment. */
  function read({ search, hash }) {
    const values = Object.fromEntries(new URLSearchParams(search));
    const prompts = new URLSearchParams(hash.replace(/^#/, ""));
    for (const name of PROMPT_PARTS) {
      delete values[name];
      if (prompts.has(name)) values[name] = prompts.get(name);
    }
    return values;
  }

  /** The address with `changes` ({name: value}; null removes) made to it; what it does not name stays. */
  function changed({ pathname, search, hash }, changes) {
    const query = new URLSearchParams(search);
    const fragment = new URLSearchParams(hash.replace(/^#/, ""));
    for (const [name, value] of Object.entries(changes)) {
      const part = PROMPT_PARTS.includes(name) ? fragment : query;
      if (value === null || value === undefined || value === "") part.delete(name);
      else part.set(name, String(value));
    }
    const ending = (text, sign) => (text === "" ? "" : sign + text);
    return pathname + ending(query.toString(), "?") + ending(fragment.toString(), "#");
  }

  function write(changes) {
    const address = changed(location, changes);
    if (address !== location.pathname + location.search + location.hash) history.replaceState(history.state, "", address);
  }

  return { read, changed, write };
})();
