// CUDA in the strings of Python: which strings are CUDA, and their parts that the compiler reads.
import { LanguageSupport } from "@codemirror/language";
import { parseMixed } from "@lezer/common";
import { cudaLanguage } from "./cuda.js";

// Python with its support in an editor, where strings that hold CUDA are parsed as CUDA.
export function withCuda(python) {
  const language = python.language.configure({ wrap: parseMixed(cudaIn) });
  return new LanguageSupport(language, python.support);
}

function cudaIn(node, input) {
  if (node.name !== "String" && node.name !== "FormatString") return null;
  const parts = partsOf(node.node, input);
  const text = parts.map(({ from, to }) => input.read(from, to)).join("");
  return isCuda(text) ? { parser: cudaLanguage.parser, overlay: parts } : null;
}

// The ranges of a string's text: without its quotes, escapes and, in an f-string, what Python
// puts in and the second of two braces.
function partsOf(string, input) {
  const text = input.read(string.from, string.to);
  const [open, quotes] = /^\w*("""|'''|"|')/.exec(text);
  const closed = text.length >= open.length + quotes.length && text.endsWith(quotes);
  const end = string.to - (closed ? quotes.length : 0);

  const gaps = [];
  for (let child = string.firstChild; child; child = child.nextSibling) gaps.push(child);
  if (string.name === "FormatString")
    for (const { index } of text.matchAll(/{{|}}/g)) {
      const from = string.from + index + 1;
      if (!gaps.some((gap) => gap.from < from && from < gap.to)) gaps.push({ from, to: from + 1 });
    }
  gaps.sort((a, b) => a.from - b.from);

  const parts = [];
  let from = string.from + open.length;
  for (const gap of [...gaps, { from: end, to: end }]) {
    if (from < gap.from) parts.push({ from, to: gap.from });
    from = gap.to;
  }
  return parts;
}

// A line as C has it, by its beginning or its end; the second is one that little else has.
const LINE = /^\s*(#\s*\w|\/\/|template\b)|[;{},()>]\s*$|[;{},()]\s*\/\/.*$/;
const LINE_OF_C = /^\s*#\s*(include|define|undef|pragma|if|ifdef|ifndef)\b|[;{}](\s*\/\/.*)?$/;

const any = (...patterns) => new RegExp(patterns.map((pattern) => pattern.source).join("|"));

// What prose and other languages do not have: words of CUDA and C++, a declaration.
const WORD = any(
  /\b__(global|device|host|shared|constant|launch_bounds|restrict)__\b|\b__[a-z]\w+\(/,
  /\b(threadIdx|blockIdx|blockDim|gridDim)\b|<<<[^<>]+>>>|\basm\b/,
  /\b(torch|at|c10|std)::|\bTORCH_CHECK\b|\bC10_\w+|\btemplate *<|_cast</,
  /\b(static|constexpr|const|struct)\b.*[;{]|^\s*#\s*(include|define|pragma)\b/,
  /\b(void|bool|char|int|long|unsigned|float|double|half|auto|Tensor|\w+_t)\b[ *&]+\w/,
);

// What a single line may have instead: an assignment, a call, a sum or product, `return`.
const STATEMENT = any(
  /^(?!\s*\w+ +\w).*[\w\])] *(<<|>>|[-+*\/%&|^])?= *[^ =].*;/,
  /\w\(.*\)[^.]*;|^\s*return\b.*;|^[^;'"]*[\w\])] [-+*\/%] [^;'"]*;$/,
);

const PYTHON = /^(import|from) [\w.]+/;

export function isCuda(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const some = (pattern) => lines.some((line) => pattern.test(line));
  if (!some(LINE_OF_C) || some(PYTHON)) return false;
  if (lines.length === 1) return some(WORD) || some(STATEMENT);
  return some(WORD) && lines.filter((line) => LINE.test(line)).length >= lines.length / 2;
}
