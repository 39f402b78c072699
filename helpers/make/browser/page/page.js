// The page: a choice of kernels, an editor, and a worker that runs Python.
"use strict";

const at = (id) => document.getElementById(id);
const code = at("code");
const WORD = /(#.*)|([rfb]*"""[^]*?"""|[rfb]*"(?:\\.|[^"\\\n])*"|[rfb]*'(?:\\.|[^'\\\n])*')|\b(def|return|if|elif|else|for|while|in|not|and|or|with|as|from|import|lambda|assert|pass|break|continue|try|except|raise|is|class|yield|None|True|False)\b|\b(\d[\w.]*)/g;
let lessons = [], loaded = {}, worker, running, wrongLine = 0;

const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

function paint() {
  let html = "", from = 0;
  for (const found of code.value.matchAll(WORD)) {
    const kind = "cskn"[found.slice(1).findIndex((part) => part !== undefined)];
    html += escaped(code.value.slice(from, found.index)) + `<span class="${kind}">${escaped(found[0])}</span>`;
    from = found.index + found[0].length;
  }
  at("colours").innerHTML = html + escaped(code.value.slice(from)) + "\n";
  const lines = code.value.split("\n").length;
  const numbers = Array.from({ length: lines }, (_, i) =>
    i + 1 === wrongLine ? `<span class="at">${i + 1}</span>` : `${i + 1}`);
  at("numbers").innerHTML = numbers.join("\n");
  code.style.height = `${20 * lines + 34}px`;
}

// ---- the editor

let leaving = false;  // Escape was pressed: the next Tab leaves the editor
code.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
    return;
  }
  if (event.key === "Enter") {
    const before = code.value.slice(0, code.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    event.preventDefault();
    insert("\n" + line.match(/^ */)[0] + (/:\s*(#.*)?$/.test(line) ? "    " : ""));
  } else if (event.key === "Tab" && !leaving) {
    event.preventDefault();
    indent(event.shiftKey);
  }
  if (event.key !== "Shift") leaving = event.key === "Escape";
});
code.addEventListener("input", () => { wrongLine = 0; keep(); paint(); });
code.addEventListener("scroll", () => { at("colours").scrollLeft = code.scrollLeft; });

function insert(text) {
  document.execCommand("insertText", false, text);  // as typed: it can be undone
}

function indent(less) {
  const { selectionStart: from, selectionEnd: to, value } = code;
  if (from === to && !less) { insert("    "); return; }
  const first = value.lastIndexOf("\n", from - 1) + 1;
  const end = value.indexOf("\n", to - (to > from ? 1 : 0));
  const last = end < 0 ? value.length : end;
  const lines = value.slice(first, last).split("\n");
  const text = lines.map((line) => less ? line.replace(/^ {1,4}/, "") : "    " + line).join("\n");
  code.setSelectionRange(first, last);
  insert(text);
  code.setSelectionRange(first, first + text.length);
}

// ---- what is chosen, written, solved

const store = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* a private window */ } },
  drop(key) { try { localStorage.removeItem(key); } catch { /* a private window */ } },
};
const chosen = () => lessons[at("lesson").selectedIndex];
const keep = () => store.set(`code ${chosen().id}`, code.value);

function choose() {
  const lesson = chosen();
  location.replace(`#${lesson.id}`);
  at("text").innerHTML = lesson.text;
  at("setup").textContent = lesson.setup;
  at("before").hidden = !lesson.setup;
  at("solved").innerHTML = lesson.solution;
  at("solution").hidden = !lesson.solution;
  at("before").open = at("solution").open = false;
  code.value = store.get(`code ${lesson.id}`) ?? lesson.code;
  at("output").innerHTML = "";
  for (const pre of document.querySelectorAll(".text pre, #solved pre")) pre.tabIndex = 0;
  wrongLine = 0;
  paint();
}

function list() {
  const select = at("lesson"), was = select.selectedIndex;
  select.innerHTML = "";
  for (const name of new Set(lessons.map((lesson) => lesson.notebook))) {
    const group = document.createElement("optgroup");
    group.label = name.replaceAll("_", " ");
    for (const lesson of lessons.filter((one) => one.notebook === name)) {
      const mark = lesson.exercise ? (store.get(`solved ${lesson.title}`) ? "● " : "○ ") : "";
      group.append(new Option(mark + (lesson.exercise ? `Exercise: ${lesson.title}` : lesson.title), lesson.id));
    }
    select.append(group);
  }
  select.selectedIndex = Math.max(was, 0);
}

// ---- Python

function start() {
  const total = Object.values(loaded).reduce((sum, size) => sum + size, 0);
  let bytes = 0;
  state("Loading Python …", 0);
  worker = new Worker("worker.js");
  worker.onmessage = ({ data }) => {
    if (data.bytes) {
      bytes += data.bytes;
      at("progress").value = Math.min(bytes / total, 1);
    } else if (data.ready) {
      document.body.dataset.ready = Math.round(performance.now());
      state("Ready");
      at("run").disabled = false;
    } else if (data.failed) {
      document.body.dataset.failed = data.failed;
      finished({ html: `<pre>${escaped(data.failed)}</pre>`, line: 0, solved: [] });
      state("Python has failed; Stop starts it anew");
      at("stop").disabled = false;
    } else {
      finished(data.result);
    }
  };
  worker.onerror = (event) => state(`Python does not load: ${event.message ?? "is this page opened from a server?"}`);
}

function run() {
  if (at("run").disabled) return;
  at("run").disabled = true;
  at("stop").disabled = false;
  at("output").innerHTML = "";
  running = performance.now();
  state("Running …");
  worker.postMessage({ setup: chosen().setup, code: code.value });
}

function finished(result) {
  at("output").innerHTML = result.html;
  for (const part of document.querySelectorAll("#output :is(pre, table, .picture)")) part.tabIndex = 0;
  wrongLine = result.line;
  paint();
  for (const name of result.solved) store.set(`solved ${name}`, "yes");
  list();
  at("stop").disabled = true;
  at("run").disabled = false;
  state(`Done in ${((performance.now() - running) / 1000).toFixed(1)} s`);
}

function stop() {
  worker.terminate();
  at("stop").disabled = true;
  at("output").innerHTML = "<p>Stopped.</p>";
  start();
}

function state(text, progress) {
  at("state").textContent = text;
  at("progress").hidden = progress === undefined;
  at("progress").value = progress ?? 0;
}

at("run").onclick = run;
at("stop").onclick = stop;
at("reset").onclick = () => { store.drop(`code ${chosen().id}`); choose(); };
at("lesson").onchange = choose;

fetch("lessons.json").then((response) => response.json()).then((data) => {
  ({ lessons, loaded } = data);
  start();
  list();
  const asked = lessons.findIndex((lesson) => `#${lesson.id}` === location.hash);
  const first = lessons.findIndex((lesson) => !lesson.exercise);
  at("lesson").selectedIndex = asked < 0 ? first : asked;
  choose();
}).catch((error) => state(`This page must be opened from a server: ${error.message}`));
