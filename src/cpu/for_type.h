// From a dtype known at run time to loops compiled for it.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::cpu {

/// body.operator()<type>().
template <class Body>
void for_type(DType type, const Body& body) {
  switch (type) {
    case DType::f16:
      return body.template operator()<DType::f16>();
    case DType::bf16:
      return body.template operator()<DType::bf16>();
    case DType::f32:
      return body.template operator()<DType::f32>();
    case DType::i8:
      return body.template operator()<DType::i8>();
    case DType::e4m3:
      return body.template operator()<DType::e4m3>();
    case DType::e5m2:
      return body.template operator()<DType::e5m2>();
    case DType::i32:
      return body.template operator()<DType::i32>();
  }
}

}  // namespace cleave::cpu
