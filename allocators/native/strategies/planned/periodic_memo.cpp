// strategies/planned/periodic_memo.cpp: plans that were searched before.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/periodic_memo.hpp"

#include <algorithm>
#include <vector>

#include "strategies/planned/hash.hpp"

namespace allocbench {
namespace {

// For each instant up to the last one of an arc: the number of arcs that begin before it. Lifetimes
// overlap in the same way when counted in these numbers.
std::vector<std::uint32_t> begun_before(std::span<Arc const> arcs) {
  std::uint32_t instants = 0;
  for (Arc const& arc : arcs) instants = std::max({instants, arc.first, arc.last});
  std::vector<std::uint32_t> begun(std::size_t{instants} + 2);
  for (Arc const& arc : arcs) ++begun[arc.first + 1];
  for (std::size_t instant = 1; instant < begun.size(); ++instant)
    begun[instant] += begun[instant - 1];
  return begun;
}

std::uint64_t problem_of(std::span<Arc const> arcs, Size alignment, std::span<Size const> given,
                         ArcOrder order) {
  auto const begun = begun_before(arcs);
  Hash hash;
  hash.add(static_cast<std::uint64_t>(order));
  hash.add(given.size());
  for (Size const offset : given) hash.add(offset);
  for (Arc const& arc : arcs) {
    hash.add(round_up(arc.size, alignment));
    hash.add(std::uint64_t{begun[arc.first]} << 32 | begun[arc.last]);
  }
  return hash.value();
}

}  // namespace

Plan PeriodicMemo::plan(std::span<Arc const> arcs, Size alignment, std::span<Size const> given,
                        ArcOrder order) {
  std::uint64_t const problem = problem_of(arcs, alignment, given, order);
  for (Search const& search : searches_)
    if (search.problem == problem && search.plan.offsets.size() == arcs.size()) return search.plan;
  Search& search = searches_[next_];
  next_ = (next_ + 1) % kMost;
  search = {problem, plan_periodic(arcs, alignment, given, order)};
  return search.plan;
}

}  // namespace allocbench
