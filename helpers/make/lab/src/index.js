// The plugin of JupyterLab: Python whose strings may hold CUDA, and the language of .cu files.
import { IEditorLanguageRegistry } from "@jupyterlab/codemirror";
import { mendColours } from "./colours.js";
import { cuda } from "./cuda.js";
import { withCuda } from "./strings.js";

export default {
  id: "cuda-strings:plugin",
  description: "Colours the CUDA in Python strings, and .cu files",
  autoStart: true,
  requires: [IEditorLanguageRegistry],
  activate(app, languages) {
    mendColours();
    languages.addLanguage({
      name: "CUDA",
      mime: "text/x-cuda",
      extensions: ["cu", "cuh"],
      support: cuda,
    });
    for (const mime of ["text/x-ipython", "text/x-python"]) {
      const python = languages.findByMIME(mime);
      const load = python.load.bind(python);
      python.load = async () => withCuda(await load());
    }
  },
};
