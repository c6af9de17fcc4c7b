// What libcleave exports: what is marked, and nothing else. Every public header begins here.
#pragma once

#if __cplusplus < 202002L
#error "Cleave's headers need C++20: compile with -std=c++20 (the target cleave::cleave does)"
#include "cleave/core/needs C++20"  // ends the compilation, which would only repeat this in its own words
#endif

/// The functions and classes of these headers.
#define CLEAVE_API __attribute__((visibility("default")))

/// What the Python module of the same build calls beyond them. No promise goes with it.
#define CLEAVE_TOOLS CLEAVE_API
