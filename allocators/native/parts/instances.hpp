// parts/instances.hpp: several allocators of one strategy inside another allocator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "parts/node.hpp"

namespace allocbench {

// There may be thousands of instances. So a trim visits only those that were used since they were
// last trimmed, because the others have nothing to give back, and the largest free block is looked
// up only in those that were used since the last look.
class Instances {
 public:
  Index add(std::unique_ptr<Allocator> made) {
    all_.push_back({std::move(made)});
    auto const added = static_cast<Index>(all_.size() - 1);
    used(added);
    return added;
  }
  std::size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }
  Allocator& operator[](Index instance) const { return *all_[instance].allocator; }
  // For a call that changes the instance, or what it may give back.
  Allocator& use(Index instance) {
    if (all_[instance].trimmed || all_[instance].seen) used(instance);
    return *all_[instance].allocator;
  }
  template <class Call>
  void use_all(Call call) {
    for (Index instance = 0; instance < all_.size(); ++instance) call(use(instance));
  }

  // Trims the instances for which `which(index)` is true, those with the lowest `rank(index)`
  // first.
  template <class Which, class Rank = std::identity>
  void trim(Which which, Rank rank = {}) {
    std::ranges::sort(untrimmed_, {}, rank);
    std::vector<Index> rest;
    for (Index const instance : untrimmed_) {
      One& one = all_[instance];
      if (which(instance)) {
        use(instance).trim();
        one.trimmed = !one.allocator->device().keeps_memory();
      }
      if (!one.trimmed) rest.push_back(instance);
    }
    untrimmed_ = std::move(rest);
  }

  // Those that were used since they were last trimmed.
  std::vector<Index> const& untrimmed() const { return untrimmed_; }

  void add_to(std::vector<Segment>& snapshot) const {
    for (One const& one : all_)
      std::ranges::move(one.allocator->snapshot(), std::back_inserter(snapshot));
  }
  void add_to(Counters& sums) const {  // all instances have the same counters
    for (One const& one : all_) {
      Counters const more = one.allocator->counters();
      if (sums.empty()) sums.resize(more.size());
      for (std::size_t n = 0; n < sums.size(); ++n)
        sums[n] = {more[n].first, sums[n].second + more[n].second};
    }
  }
  Size largest_free() const {
    for (Index const instance : std::exchange(unseen_, {})) {
      One const& one = all_[instance];
      if (auto const old = largest_.find(one.largest); old != largest_.end()) largest_.erase(old);
      largest_.insert(one.largest = one.allocator->largest_free());
      one.seen = true;
    }
    return largest_.empty() ? 0 : *largest_.rbegin();
  }
  void check() const {
    for (One const& one : all_) one.allocator->check();
  }

 private:
  static constexpr Size kUnknown = ~Size{0};

  struct One {
    std::unique_ptr<Allocator> allocator;
    bool trimmed = true;              // not used since the last trim
    mutable bool seen = true;         // not used since `largest` was looked up
    mutable Size largest = kUnknown;  // free block
  };

  void used(Index instance) {
    if (std::exchange(all_[instance].trimmed, false)) untrimmed_.push_back(instance);
    if (std::exchange(all_[instance].seen, false)) unseen_.push_back(instance);
  }

  std::vector<One> all_;
  std::vector<Index> untrimmed_;
  mutable std::vector<Index> unseen_;
  mutable std::multiset<Size> largest_;  // of those that have been looked at
};

}  // namespace allocbench
