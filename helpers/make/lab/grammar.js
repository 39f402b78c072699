// Makes the parser of CUDA: the C++ grammar of @lezer/cpp, and what CUDA adds to it.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { buildParserFile } from "@lezer/generator";

const CPP = new URL("node_modules/@lezer/cpp/src/", import.meta.url);

// Each: a piece of cpp.grammar that stands there once, and what it becomes.
const CHANGES = [
  [
    `kw<"register"> | kw<"inline">`,
    `kw<"register"> | kw<"inline"> | cudaSpecifier |
  AlignSpecifier | LaunchBounds { launchBounds ArgumentList }`,
  ],
  [`MsDeclspecModifier? Attribute*
  (className`, `MsDeclspecModifier? AlignSpecifier? Attribute*
  (className`],
  [
    `  CoYieldStatement
}`,
    `  CoYieldStatement |
  AsmStatement
}

AsmStatement {
  kw<"asm"> kw<"volatile">?
  "(" (String | ConcatenatedString) ((":" | "::") commaSep<AsmOperand>)* ")" ";"
}

AsmOperand {
  String ParenthesizedExpression?
}`,
  ],
  [`"__restrict" |`, `"__restrict" | "__restrict__" |`],
  [
    `expression !arguments ArgumentList |
  primitiveType`,
    `expression !arguments ArgumentList |
  expression !arguments LaunchConfiguration ArgumentList |
  primitiveType`,
  ],
  [
    `
FieldExpression {`,
    `
LaunchConfiguration {
  "<<<" commaSep<(expression | InitializerList)> ">>>"
}

FieldExpression {`,
  ],
  [
    `  CharLiteral |
  ParenthesizedExpression |`,
    `  CharLiteral |
  CudaName |
  ParenthesizedExpression |`,
  ],
  [
    `primitiveType ~afterPrimitive ArgumentList`,
    `primitiveType ~afterPrimitive ArgumentList |
  SizedTypeSpecifier ~afterPrimitive ArgumentList`,
  ],
  [
    `SizedTypeSpecifier |
  primitiveType`,
    `SizedTypeSpecifier ~afterPrimitive |
  primitiveType`,
  ],
  [
    `(fieldDeclarator ("," fieldDeclarator)*)?
    (BitfieldClause | InitializerList | "=" (expression | InitializerList))? ";"`,
    `commaSep<
      fieldDeclarator (BitfieldClause | InitializerList | "=" (expression | InitializerList))?
    > ";"`,
  ],
  // a directive may stand at the end of a string
  [`LineComment? "\\n" }`, `LineComment? lineEnd }`],
  [
    `  ppSpace { `,
    `  lineEnd { "\\n" | @eof }

  "<<<" ">>>"

  @precedence { ">>>", templateArgsEnd }

  ppSpace { `,
  ],
  [
    `access { @specialize`,
    `cudaSpecifier {
  @specialize[@name=CudaSpecifier]<identifier,
    "__global__" | "__device__" | "__host__" | "__shared__" | "__constant__" | "__managed__" |
    "__grid_constant__" | "__forceinline__" | "__noinline__">
}

AlignSpecifier {
  (kw<"alignas"> | kw<"__align__">) ArgumentList
}

launchBounds { @specialize[@name=CudaSpecifier]<identifier, "__launch_bounds__"> }

CudaName[@dynamicPrecedence=1] { cudaName }

@external extend { identifier } cudaNames from "../src/names.js" { cudaName }

access { @specialize`,
  ],
];

export function makeParser(folder) {
  let text = readFileSync(new URL("cpp.grammar", CPP), "utf8");
  for (const [before, after] of CHANGES) {
    const pieces = text.split(before);
    if (pieces.length !== 2)
      throw new Error(`cpp.grammar has ${pieces.length - 1} times, expected once:\n${before}`);
    text = pieces.join(after);
  }
  text = text.replace(/ from "(\.\/\w+)"/g, ' from "$1.js"');
  const { parser, terms } = buildParserFile(text, { fileName: "cuda.grammar" });
  mkdirSync(folder, { recursive: true });
  writeFileSync(new URL("parser.js", folder), parser);
  writeFileSync(new URL("parser.terms.js", folder), terms);
  for (const file of ["tokens.js", "highlight.js"])
    copyFileSync(new URL(file, CPP), new URL(file, folder));
}
