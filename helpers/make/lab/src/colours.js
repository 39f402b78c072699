// Those of JupyterLab's colours that have too little contrast in a cell, a little darker or
// lighter: at least 4.5 : 1, as WCAG asks for.
const COLOURS = {
  "JupyterLab Light": {
    bracket: "#6f6f55",
    comment: "#3b7878",
    meta: "#9c10ee",
    number: "#007d00",
  },
  "JupyterLab Dark": { comment: "#5c9e9e", def: "#4a9ff0", meta: "#c07aff" },
};

export function mendColours() {
  const rules = Object.entries(COLOURS).map(([theme, colours]) => {
    const lines = Object.entries(colours).map(
      ([name, colour]) => `--jp-mirror-editor-${name}-color: ${colour};`,
    );
    return `body[data-jp-theme-name="${theme}"] { ${lines.join(" ")} }`;
  });
  const style = document.createElement("style");
  style.textContent = rules.join("\n");
  document.head.append(style);
}
