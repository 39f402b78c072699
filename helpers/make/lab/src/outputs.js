// Outputs, where JupyterLab's style makes them hard to read: lines broken within a word or a
// number, no space below a closed <details>, and text that begins right of tables and pictures.
// The left edge is that of Markdown's text.
const STYLE = `
.jp-OutputArea .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }
.jp-RenderedHTMLCommon details:not(:last-child) { margin-bottom: 1em; }
.jp-OutputArea-child .jp-OutputArea-output:is(
  .jp-RenderedText, .jp-RenderedHTML, .jp-RenderedImage, .jp-RenderedSVG
) { padding-left: 6px; }
`;

export function mendOutputs() {
  const style = document.createElement("style");
  style.textContent = STYLE;
  document.head.append(style);
}
