#include "jit/spell.h"

namespace cleave {

#define CLEAVE_SPELL(enumerator) \
  case enumerator:               \
    return "cleave::" #enumerator

const char* spell(DType value) {
  switch (value) {
    CLEAVE_SPELL(DType::f16);
    CLEAVE_SPELL(DType::bf16);
    CLEAVE_SPELL(DType::f32);
    CLEAVE_SPELL(DType::i8);
    CLEAVE_SPELL(DType::e4m3);
    CLEAVE_SPELL(DType::e5m2);
    CLEAVE_SPELL(DType::i32);
  }
  return "";
}

const char* spell(Precision value) {
  switch (value) {
    CLEAVE_SPELL(Precision::tf32);
    CLEAVE_SPELL(Precision::ieee);
  }
  return "";
}

const char* spell(SplitKMode value) {
  switch (value) {
    CLEAVE_SPELL(SplitKMode::none);
    CLEAVE_SPELL(SplitKMode::serial);
    CLEAVE_SPELL(SplitKMode::parallel);
    CLEAVE_SPELL(SplitKMode::cluster);
    CLEAVE_SPELL(SplitKMode::stream_k);
    CLEAVE_SPELL(SplitKMode::automatic);
  }
  return "";
}

const char* spell(Activation value) {
  switch (value) {
    CLEAVE_SPELL(Activation::none);
    CLEAVE_SPELL(Activation::relu);
    CLEAVE_SPELL(Activation::gelu_tanh);
    CLEAVE_SPELL(Activation::gelu_erf);
    CLEAVE_SPELL(Activation::silu);
    CLEAVE_SPELL(Activation::swiglu);
  }
  return "";
}

const char* spell(Grouping value) {
  switch (value) {
    CLEAVE_SPELL(Grouping::none);
    CLEAVE_SPELL(Grouping::m);
    CLEAVE_SPELL(Grouping::n);
    CLEAVE_SPELL(Grouping::k);
    CLEAVE_SPELL(Grouping::classes);
  }
  return "";
}

const char* spell(Conv value) {
  switch (value) {
    CLEAVE_SPELL(Conv::none);
    CLEAVE_SPELL(Conv::fprop);
    CLEAVE_SPELL(Conv::dgrad);
    CLEAVE_SPELL(Conv::wgrad);
  }
  return "";
}

const char* spell(Bias value) {
  switch (value) {
    CLEAVE_SPELL(Bias::none);
    CLEAVE_SPELL(Bias::row);
    CLEAVE_SPELL(Bias::column);
  }
  return "";
}

const char* spell(Major value) {
  switch (value) {
    CLEAVE_SPELL(Major::k);
    CLEAVE_SPELL(Major::mn);
  }
  return "";
}

const char* spell(Order value) {
  switch (value) {
    CLEAVE_SPELL(Order::row);
    CLEAVE_SPELL(Order::column);
  }
  return "";
}

const char* spell(KernelFamily value) {
  switch (value) {
    CLEAVE_SPELL(KernelFamily::automatic);
    CLEAVE_SPELL(KernelFamily::sm90);
    CLEAVE_SPELL(KernelFamily::portable);
  }
  return "";
}

const char* spell(Scaling value) {
  switch (value) {
    CLEAVE_SPELL(Scaling::none);
    CLEAVE_SPELL(Scaling::vector);
    CLEAVE_SPELL(Scaling::block);
  }
  return "";
}

#undef CLEAVE_SPELL

const char* spell(bool value) {
  return value ? "true" : "false";
}
uint32_t spell(uint32_t value) {
  return value;
}

}  // namespace cleave
