// npm run build: makes labextension/, which JupyterLab loads, from the sources beside it.
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import webpack from "webpack";
import { makeParser } from "./grammar.js";

const here = (path) => new URL(path, import.meta.url);
const read = (path) => readFileSync(here(path), "utf8");
const { name, version, description, license } = JSON.parse(read("package.json"));

// JupyterLab's own copies of these are used; two would not understand each other's trees.
const SHARED = [
  "@codemirror/language",
  "@codemirror/state",
  "@codemirror/view",
  "@jupyterlab/codemirror",
  "@jupyterlab/rendermime",
  "@lezer/common",
  "@lezer/highlight",
];

// The SHA-256 of what is built from; test_lab_extension.py compares it.
function digest() {
  const hash = createHash("sha256");
  const files = ["package.json", "package-lock.json", "build.js", "grammar.js"];
  for (const file of [...files, ...readdirSync(here("src")).sort().map((file) => `src/${file}`)])
    hash.update(`${file}\n${read(file)}`);
  return hash.digest("hex");
}

function pack() {
  return new Promise((resolve, reject) => {
    const { container } = webpack;
    const options = {
      mode: "production",
      context: here(".").pathname,
      entry: {},
      output: {
        path: here("labextension/static").pathname,
        filename: "[name].[contenthash].js",
        chunkFilename: "[name].[contenthash].js",
        publicPath: "auto",
        uniqueName: name,
      },
      optimization: { chunkIds: "named", splitChunks: false },
      plugins: [
        new container.ModuleFederationPlugin({
          name,
          filename: "remoteEntry.[contenthash].js",
          library: { type: "var", name: ["_JUPYTERLAB", name] },
          exposes: { "./extension": { import: "./src/index.js", name: "extension" } },
          shared: Object.fromEntries(
            SHARED.map((shared) => [
              shared,
              { singleton: true, import: false, requiredVersion: false },
            ]),
          ),
        }),
      ],
    };
    webpack(options, (error, stats) => {
      if (error || stats.hasErrors()) reject(error ?? new Error(stats.toString("errors-only")));
      else resolve();
    });
  });
}

makeParser(here("build/"));
rmSync(here("labextension"), { recursive: true, force: true });
await pack();
const load = readdirSync(here("labextension/static")).find((file) => /^remoteEntry\./.test(file));
for (const used of ["cpp", "lr"])
  copyFileSync(
    here(`node_modules/@lezer/${used}/LICENSE`),
    here(`labextension/LICENSE.lezer-${used}`),
  );
const about = {
  name,
  version,
  description,
  license,
  jupyterlab: { extension: true, _build: { load: `static/${load}`, extension: "./extension" } },
  sources: digest(),
};
writeFileSync(here("labextension/package.json"), JSON.stringify(about, null, 2) + "\n");
