// What CUDA gives a name: a kernel's indices, and functions like __syncthreads and atomicAdd.
import { cudaName } from "../build/parser.terms.js";

const NAME =
  /^(threadIdx|blockIdx|blockDim|gridDim|warpSize|__(?!restrict)[a-z]\w*[^\W_]|atomic[A-Z]\w*)$/;

export const cudaNames = (name) => (NAME.test(name) ? cudaName : -1);
