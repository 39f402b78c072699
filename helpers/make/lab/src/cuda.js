// The language CUDA: its parser with what an editor asks for, colours, indentation and folding.
import {
  continuedIndent,
  delimitedIndent,
  flatIndent,
  foldInside,
  foldNodeProp,
  indentNodeProp,
  LanguageSupport,
  LRLanguage,
} from "@codemirror/language";
import { styleTags, tags as t } from "@lezer/highlight";
import { parser } from "../build/parser.js";

const builtin = t.standard(t.variableName);

export const cudaLanguage = LRLanguage.define({
  name: "cuda",
  parser: parser.configure({
    props: [
      styleTags({
        "CudaSpecifier alignas __align__ asm": t.modifier,
        CudaName: builtin,
        // JupyterLab's theme has no colour for types; Python's are builtin names to it
        "PrimitiveType! TypeSize!": [t.standard(t.typeName), builtin],
        '"<<<" ">>>"': t.operator,
      }),
      indentNodeProp.add({
        IfStatement: continuedIndent({ except: /^\s*({|else\b)/ }),
        LabeledStatement: flatIndent,
        CaseStatement: (context) => context.baseIndent + context.unit,
        BlockComment: () => null,
        CompoundStatement: delimitedIndent({ closing: "}" }),
        Statement: continuedIndent({ except: /^{/ }),
      }),
      foldNodeProp.add({
        "CompoundStatement EnumeratorList FieldDeclarationList InitializerList": foldInside,
      }),
    ],
  }),
  languageData: {
    commentTokens: { line: "//", block: { open: "/*", close: "*/" } },
    indentOnInput: /^\s*(?:case |default:|\{|\})$/,
  },
});

export const cuda = new LanguageSupport(cudaLanguage);
