// The alternative text of an output's picture: JupyterLab's renderer leaves it out.

// A factory like the given one, whose pictures have the `alt` of the output's metadata, or else
// the output's plain text.
export function withAlt(factory) {
  return {
    ...factory,
    createRenderer(options) {
      const renderer = factory.createRenderer(options);
      const render = renderer.renderModel.bind(renderer);
      renderer.renderModel = async (model, ...rest) => {
        await render(model, ...rest);
        const text = model.metadata[options.mimeType]?.alt ?? model.data["text/plain"];
        const picture = renderer.node.querySelector("img");
        if (picture && text !== undefined) picture.alt = String(text);
      };
      return renderer;
    },
  };
}

export function describePictures(rendermime) {
  for (const mime of ["image/png", "image/jpeg"])
    rendermime.addFactory(withAlt(rendermime.getFactory(mime)));
}
