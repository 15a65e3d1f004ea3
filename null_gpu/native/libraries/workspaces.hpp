// native/libraries/workspaces.hpp: a model of the libraries' workspaces.
// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's libraries do not allocate their workspaces: they say how many bytes they need, and
// PyTorch allocates them. null_gpu/workspaces.json has the rules and their sources.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// The rules of workspaces.json, in its order.
enum class Rule : int {
  kConvolution,
  kGraph,
  kRnnWorkspace,
  kRnnReserve,
  kDropoutStates,
  kBatchNorm,
  kCtcLoss,
  kSolver,
  kSparse,
  kFft,
  kCount,
};

// What a rule assumes: the bytes that the user chose for every request, or the name of a formula.
struct Assumption {
  bool is_bytes = true;
  Size bytes = 0;
  std::string name;

  [[nodiscard]] bool is(char const* formula) const { return !is_bytes && name == formula; }
};

// The assumption of a rule: what null_configure() was told, otherwise 0 bytes.
Assumption const& assumption(Rule rule);
// Set it from text, a number or a name; false if there is no rule of that name.
bool assume(std::string const& rule, std::string const& text);

// Remember that a library has asked for a workspace, which PyTorch allocates next; returns `bytes`.
Size asked(Rule rule, Size bytes);
// Remember that a library was called with the workspace at an address.
void used(Rule rule, void const* address, Size bytes);
// Remember that a library was called without a workspace.
void used_none(Rule rule);
// Remember that PyTorch chose a convolution without the workspace that the best one has.
void forgone();
// Remember that a library which was given no workspace may ask for up to so many bytes.
void may_ask(Size bytes);

// One workspace that PyTorch allocated. address: 0 where only its size is known, because the
// library was asked for the size before the allocation. The layout is read by inside/workspaces.py.
struct WorkspaceUse {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t time_ns;  // since 1970
  std::int32_t device;
  std::int32_t rule;
};
static_assert(sizeof(WorkspaceUse) == 32);

// The pointer that is argument number `index`, counted from 0. The callers are declared variadic,
// because this ABI passes integers and pointers in the same way to variadic functions as to others.
template <class Number>
Number* argument(std::va_list arguments, int index) {
  void* pointer = nullptr;
  for (int argument = 1; argument <= index; ++argument) pointer = va_arg(arguments, void*);
  return static_cast<Number*>(pointer);
}

}  // namespace allocbench::null_gpu

// The pointer `out` that is argument number `index` of a function with the arguments (first, ...).
#define NULL_GPU_ARGUMENT(Number, out, index)                    \
  std::va_list arguments_of_##out;                               \
  va_start(arguments_of_##out, first);                           \
  auto* const out = argument<Number>(arguments_of_##out, index); \
  va_end(arguments_of_##out);

// Writes how much workspace there is, in units of `unit` bytes, through the argument at `index`.
#define WORKSPACE(name, rule, Number, unit, index)                                        \
  NULL_GPU_API int null_##name(Handle first, ...) {                                       \
    NULL_GPU_ARGUMENT(Number, out, index)                                                 \
    Size const count = (assumption(rule).bytes + (unit) - 1) / (unit);                    \
    if (out != nullptr) *out = static_cast<Number>(asked(rule, count * (unit)) / (unit)); \
    return kSuccess;                                                                      \
  }
