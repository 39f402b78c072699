// What inline PTX becomes: the translator (ptx.py) turns each instruction of an asm statement into
// a call of one of these functions. Registers are unsigned integers of their size, as in PTX.
#pragma once
#include "ptx/arithmetic.h"
#include "ptx/conversions.h"
#include "ptx/matrices.h"
#include "ptx/memory.h"
#include "ptx/registers.h"
#include "ptx/warps.h"
