// What the programs that compare the null GPU with NVIDIA's headers share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

inline int wrong = 0;         // comparisons that failed
inline void* core = nullptr;  // the null GPU's library

inline void check(char const* what, long long ours, long long theirs) {
  if (ours == theirs) return;
  std::printf("%s: %lld, not %lld\n", what, ours, theirs);
  ++wrong;
}

// Load the library, and configure it with lines of `key=value`; false if that fails.
inline bool load(char const* path, char const* settings) {
  core = dlopen(path, RTLD_NOW);
  if (core == nullptr) return false;
  reinterpret_cast<int (*)(char const*)>(dlsym(core, "null_configure"))(settings);
  return true;
}

// The null GPU's function of a name, with the arguments that the header declares.
template <class Function>
Function* find(char const* name) {
  return reinterpret_cast<Function*>(dlsym(core, name));
}
#define STRING(name) #name
#define NULL_GPU(name) find<decltype(::name)>("null_" STRING(name))

// A struct, and bytes behind it that must stay as they are.
template <class Struct>
struct Room {
  Struct here;
  unsigned char behind[64];

  Room() { std::memset(static_cast<void*>(this), 0x5a, sizeof *this); }
  void check_behind(char const* what) const {
    for (auto const byte : behind) check(what, byte, 0x5a);
  }
};
