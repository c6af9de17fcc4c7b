// How Python calls a callable (the vectorcall protocol), and another function in that one's place.
#pragma once

#include <nanobind/nanobind.h>

namespace cleave::python {

/// Null for callables of other kinds than nanobind's functions and Python's own.
vectorcallfunc entry_of(nanobind::handle callable);

/// `callable` has an entry.
void set_entry(nanobind::handle callable, vectorcallfunc entry);

}  // namespace cleave::python
