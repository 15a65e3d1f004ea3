// native/calls.hpp: calls of functions by name: how many there were, and which fail on purpose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

class Calls {
 public:
  // Counts a call; returns the error that it must return, or kSuccess. May take a while: see
  // slow().
  Status entered(char const* name) {
    double seconds = 0;
    {
      std::lock_guard const lock(mutex_);
      auto entry = functions_.find(name);  // makes no string, unlike the next line
      if (entry == functions_.end()) entry = functions_.try_emplace(name).first;
      Function& function = entry->second;
      std::uint64_t const number = ++function.calls;
      if (function.each != kSuccess) return function.each;
      auto const fails = function.fails.find(number);
      if (fails != function.fails.end()) return fails->second;
      seconds = function.seconds;
    }
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return kSuccess;
  }

  std::uint64_t count(std::string const& name) {
    std::lock_guard const lock(mutex_);
    return functions_[name].calls;
  }

  // The `number`-th call of a function from now on fails; each call if it is 0.
  void fail(std::string const& name, std::uint64_t number, Status error) {
    std::lock_guard const lock(mutex_);
    Function& function = functions_[name];
    if (number == 0) {
      function.each = error;
    } else {
      function.fails[function.calls + number] = error;
    }
  }

  // The same from text: NAME:NUMBER or NAME:NUMBER:ERROR, several of them separated by commas.
  void fail(std::string const& text) {
    std::istringstream list(text);
    for (std::string entry; std::getline(list, entry, ',');) {
      std::istringstream parts(entry);
      std::string name, number, error;
      std::getline(parts, name, ':');
      std::getline(parts, number, ':');
      std::getline(parts, error);
      Status const status = error.empty() ? kOutOfMemory : std::atoi(error.c_str());
      fail(name, std::strtoull(number.c_str(), nullptr, 10), status);
    }
  }

  void fail_none() {
    std::lock_guard const lock(mutex_);
    for (auto& [name, function] : functions_) {
      function.each = kSuccess;
      function.fails.clear();
    }
  }

  // From now on, each call of a function that does not fail takes this long, and no call of others.
  void slow(std::string const& name, double seconds) {
    std::lock_guard const lock(mutex_);
    for (auto& [other, function] : functions_) function.seconds = 0;
    functions_[name].seconds = seconds;
  }

 private:
  struct Function {
    std::uint64_t calls = 0;
    Status each = kSuccess;                 // the error of every call
    std::map<std::uint64_t, Status> fails;  // the errors of calls by their numbers
    double seconds = 0;
  };

  std::mutex mutex_;
  std::map<std::string, Function, std::less<>> functions_;
};

}  // namespace allocbench::null_gpu
