// Where plotly.js comes from: fetched or unpacked when it is first wanted, once a page, never before.
SpecViz.plotlySource = (() => {
  const onceThat = (load) => {
    let loading = null;
    return () => {
      loading ??= load().catch((error) => {
        loading = null; // so that it can be tried again
        throw error;
      });
      return loading;
    };
  };

  /** From a server, under an address relative to the page. */
  const fromAddress = (address) =>
    onceThat(async () => {
      if (!window.Plotly) await runScript((script) => { script.src = address; });
      return window.Plotly;
    });

  /** From a gzip in base64 that the page itself carries as the text of `node`. */
  const fromPage = (node) =>
    onceThat(async () => {
      const code = await unpacked(node.textContent);
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
      return window.Plotly;
    });

  function runScript(prepare) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      prepare(script);
      script.addEventListener("load", () => resolve());
      script.addEventListener("error", () => {
        script.remove();
        reject(new Error("plotly.js did not come"));
      });
      document.head.append(script);
    });
  }

  function unpacked(base64) {
    const bytes = Uint8Array.from(atob(base64.trim()), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  return { fromAddress, fromPage };
})();
