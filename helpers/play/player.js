(async () => {
  const root = document.currentScript.parentElement;
  const bytes = Uint8Array.from(atob("PACKED"), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = await new Response(unpacked).json();

  const sums = (steps) => { let sum = 0; return steps.map((step) => (sum += step)); };
  const layers = data.layers.map(([kinds, x, y, textKinds, textX, textY, words]) => {
    const [xs, ys, textXs, textYs] = [x, y, textX, textY].map(sums);
    return [
      kinds.map((kind, i) => [xs[i], ys[i], ...data.boxes[kind]]),
      textKinds.map((kind, i) => [textXs[i], textYs[i], words[i], ...data.texts[kind]]),
    ];
  });
  const every = (length, side) => {
    const places = [];
    for (let at = side; at < length; at += side) places.push(at);
    return places;
  };
  const number = (value) => +value.toPrecision(6);
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;").replaceAll('"', "&quot;").replaceAll("'", "&#x27;");
  const box = ([x, y, w, h, fill, line, thick, dashed, side]) => {
    const dashes = dashed ? ` stroke-dasharray='${dashed}'` : "";
    const inner = every(h, side).map((at) => `M${x} ${y + at}h${w}`)
      .concat(every(w, side).map((at) => `M${x + at} ${y}v${h}`)).join("");
    return `<path fill='${fill}' stroke='${line}' stroke-width='${thick}'${dashes}`
      + ` d='M${x} ${y}h${w}v${h}h${-w}z${inner}'/>`;
  };
  const text = ([x, y, words, size, color]) =>
    `<text x='${number(x)}' y='${number(y + 0.36 * size)}' font-size='${size}' fill='${color}'>`
    + `${escaped(words)}</text>`;
  const svg = (numbers) => {
    const drawn = numbers.map((i) => layers[i]);
    const [before, after] = data.frame;
    return before + drawn.flatMap(([boxes]) => boxes.map(box)).join("")
      + drawn.flatMap(([, texts]) => texts.map(text)).join("") + after;
  };

  const player = document.createElement("div");
  player.setAttribute("role", "group");
  player.setAttribute("aria-label", root.querySelector("b").textContent);
  const row = player.appendChild(document.createElement("p"));
  const image = player.appendChild(document.createElement("img"));
  image.style.maxWidth = "100%";
  const words = player.appendChild(document.createElement("p"));
  words.setAttribute("aria-live", "polite");
  const show = () => {
    let place = 0;
    controls.forEach((control, i) => {
      place = place * data.controls[i][1].length + +control.value;
    });
    const [drawings, pieces] = data.scenes[place];
    image.src = "data:image/svg+xml," + encodeURIComponent(svg(drawings));
    image.alt = words.textContent = pieces.map((i) => data.pieces[i]).join("");
  };
  const slider = (label, shown, start) => {
    const input = label.appendChild(document.createElement("input"));
    const said = label.appendChild(document.createElement("output"));
    Object.assign(input, {type: "range", min: 0, max: shown.length - 1, value: start});
    Object.assign(input.style, {verticalAlign: "middle", margin: "0 6px", padding: 0});
    said.style.display = "inline-block";
    said.style.minWidth = `${Math.max(...shown.map((text) => text.length))}ch`;
    const say = () => {
      said.textContent = shown[+input.value];
      input.setAttribute("aria-valuetext", shown[+input.value]);
    };
    input.oninput = () => { say(); show(); };
    say();
    return input;
  };
  const menu = (label, shown, start) => {
    const select = label.appendChild(document.createElement("select"));
    select.style.font = "inherit";
    select.style.margin = "0 6px";
    shown.forEach((text, i) => {
      const option = select.appendChild(document.createElement("option"));
      option.value = i;
      option.textContent = text;
    });
    select.value = start;
    select.onchange = show;
    return select;
  };
  const controls = data.controls.map(([name, shown, start, slides]) => {
    const label = row.appendChild(document.createElement("label"));
    Object.assign(label.style, {display: "inline-block", margin: "0 18px 6px 0"});
    label.append(name + " ");
    const control = (slides ? slider : menu)(label, shown, start);
    control.setAttribute("data-lm-suppress-shortcuts", "true");  // else JupyterLab takes the arrows
    return control;
  });
  show();
  for (const paragraph of root.querySelectorAll("p")) paragraph.remove();
  root.querySelector("b").after(player);

  // the picture that stands for it where no script runs: JupyterLab's, or the site's
  const still = root.closest(".jp-OutputArea")?.querySelector(".jp-RenderedImage")
    ?? root.closest(".outputs")?.querySelector(".wide > img");
  if (still) (still.closest(".jp-OutputArea-child") ?? still).style.display = "none";
})();
