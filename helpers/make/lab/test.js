// npm test: what is CUDA and what is not, that CUDA's grammar reads the course's kernels, and the
// alternative text of pictures.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { LanguageSupport } from "@codemirror/language";
import { pythonLanguage } from "@codemirror/lang-python";
import { NodeProp } from "@lezer/common";
import { cudaLanguage } from "./src/cuda.js";
import { withAlt } from "./src/images.js";
import { withCuda } from "./src/strings.js";

const ROOT = new URL("../../../", import.meta.url);
const python = withCuda(new LanguageSupport(pythonLanguage)).language.parser;

function nodes(tree) {
  const found = [];
  tree.iterate({ enter: (node) => void found.push(node.node) });
  return found;
}

// The strings of a Python text: each with the tree of its CUDA, if it is CUDA.
function strings(text) {
  return nodes(python.parse(text))
    .filter((node) => /^(Format)?String$/.test(node.name))
    .map((node) => ({
      text: text.slice(node.from, node.to),
      cuda: node.tree?.prop(NodeProp.mounted)?.tree,
    }));
}

const isCuda = (text) => strings(text).every(({ cuda }) => cuda);
const errors = (tree) => nodes(tree).filter((node) => node.type.isError).length;

test("strings of CUDA", () => {
  for (const text of [
    'r"""\n__global__ void k(float* out) {\n    out[threadIdx.x] = 1;\n}\n"""',
    'f"""\nvoid {name}(float* x) {{\n    k<<<1, 32>>>(x, {n});\n}}\n"""',
    'r"""\nvoid relu(float* x, int n) {\n    for (int i = 0; i < n; i++) x[i] = 0;\n}"""',
    '"#include <tuple>\\n"',
    '"__syncthreads();  // the tile is complete"',
    '"sum += x[i];"',
    '"return out;"',
  ])
    assert.ok(isCuda(text), text);
});

test("other strings", () => {
  for (const text of [
    '"""Return x; nothing else.\n\n    A list:\n        int i = 3, says C;\n    """',
    '"""\nSELECT a FROM b WHERE c = 3;\n"""',
    '"""\nimport torch\nprint(1);\nsrc = \'\'\'__global__ void k() {}\'\'\'\n"""',
    'f"a load takes {load_us:.2f} µs;"',
    '"i = block number · threads a block + thread number; "',
    '"a warp is one threadIdx.y: which lanes of other warps have its columns?"',
    'r"(\\w+);\\s*{(.*?)}"',
    '\'{"a": [1, 2]}\'',
    '""',
    'r"""',
  ])
    assert.ok(!strings(text).some(({ cuda }) => cuda), text);
});

test("a launch is read, and what follows it", () => {
  const tree = cudaLanguage.parser.parse("void f() { k<T><<<grid, 32, 0, s>>>(x); int y = 3; }");
  assert.equal(errors(tree), 0);
  const names = nodes(tree).map((node) => node.name);
  assert.ok(names.includes("LaunchConfiguration") && names.includes("InitDeclarator"));
});

test("the kernels are read", () => {
  const folder = new URL("kernels/", ROOT);
  let wrong = 0;
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".cu")))
    wrong += errors(cudaLanguage.parser.parse(readFileSync(new URL(file, folder), "utf8")));
  assert.ok(wrong < 20, `${wrong} places that the grammar does not read`);
});

test("all raw strings of the notebooks that end like C are CUDA", () => {
  const folder = new URL("notebooks/", ROOT);
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".ipynb")))
    for (const { cell_type, source } of JSON.parse(readFileSync(new URL(file, folder))).cells)
      if (cell_type === "code")
        for (const { text, cuda } of strings(source.join("")))
          if (/^r("""|''')[^]*[;}]\s*("""|''')$/.test(text)) assert.ok(cuda, `${file}: ${text}`);
});

// What withAlt makes of a renderer that, as JupyterLab's, adds <img> when it is given a model.
async function altOf(mimeType, metadata, data, picture = {}) {
  let shown = null;
  const node = { querySelector: () => shown };
  const factory = {
    createRenderer: () => ({ node, renderModel: async () => void (shown = picture) }),
  };
  await withAlt(factory).createRenderer({ mimeType }).renderModel({ metadata, data });
  return picture.alt;
}

test("a picture has the alternative text of its metadata, or else the plain text", async () => {
  const plain = { "text/plain": "<Figure>" };
  const both = { "image/png": { alt: "a dot" }, "image/jpeg": { alt: "a line" } };
  assert.equal(await altOf("image/png", both, plain), "a dot");
  assert.equal(await altOf("image/jpeg", both, plain), "a line");
  assert.equal(await altOf("image/png", { "image/png": { alt: "" } }, plain), "");
  assert.equal(await altOf("image/png", {}, plain), "<Figure>");
  assert.equal(await altOf("image/png", {}, {}), undefined);
});

test("what is not a picture stays", async () => {
  const node = { querySelector: () => null };
  const factory = { rank: 3, createRenderer: () => ({ node, renderModel: async () => {} }) };
  const wrapped = withAlt(factory);
  assert.equal(wrapped.rank, 3);
  await wrapped.createRenderer({ mimeType: "image/png" }).renderModel({ metadata: {}, data: {} });
});
