// The plugin of JupyterLab: Python whose strings may hold CUDA, the language of .cu files, and
// outputs that are easier to read.
import { IEditorLanguageRegistry } from "@jupyterlab/codemirror";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { mendColours } from "./colours.js";
import { cuda } from "./cuda.js";
import { describePictures } from "./images.js";
import { mendOutputs } from "./outputs.js";
import { withCuda } from "./strings.js";

export default {
  id: "cuda-strings:plugin",
  description: "Colours the CUDA in Python strings, and .cu files; mends outputs",
  autoStart: true,
  requires: [IEditorLanguageRegistry, IRenderMimeRegistry],
  activate(app, languages, rendermime) {
    mendColours();
    mendOutputs();
    describePictures(rendermime);
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
