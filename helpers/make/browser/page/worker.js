// Runs Python: loads Pyodide, NumPy and the course from this folder, then what the page sends.
"use strict";

const fetched = self.fetch;
self.fetch = async (...args) => {  // count the bytes that come, for the page's progress
  const response = await fetched(...args);
  if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
  const counted = response.body.pipeThrough(new TransformStream({
    transform(part, controller) {
      self.postMessage({ bytes: part.length });
      controller.enqueue(part);
    },
  }));
  return new Response(counted, { headers: response.headers, status: response.status });
};

const load = async (name) => (await self.fetch(name)).arrayBuffer();

const ready = (async () => {
  const files = Promise.all(["numpy.zip", "course.zip"].map(load));
  importScripts("pyodide.js");
  const python = await loadPyodide({ indexURL: new URL(".", self.location).href });
  const [numpy, course] = await files;
  python.unpackArchive(numpy, "zip", { extractDir: "/lib/python3.12/site-packages" });
  python.unpackArchive(course, "zip", { extractDir: "/course" });
  python.runPython("import sys; sys.path.insert(0, '/course'); sys.setrecursionlimit(500)");
  const { run } = python.pyimport("run");
  self.postMessage({ ready: true });
  return run;
})();
ready.catch((error) => self.postMessage({ failed: String(error.message ?? error) }));

self.onmessage = async ({ data }) => {
  const run = await ready;
  try {
    self.postMessage({ result: JSON.parse(run(data.setup, data.code)) });
  } catch (error) {
    self.postMessage({ failed: String(error.message ?? error) });
  }
};
