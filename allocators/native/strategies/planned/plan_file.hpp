// strategies/planned/plan_file.hpp: the profile of a run, from its plan file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/options.hpp"
#include "strategies/planned/profile.hpp"
#include "strategies/planned/step_finder.hpp"

namespace allocbench {

class PlanFile {
 public:
  // Builds the profile of a run from a CSV with the columns id,lower,upper,size,offset,step: one
  // block per line, alive from instant `lower` up to but not including `upper` and requested after
  // `step` steps had begun. Without the column `step`, steps are detected as in a run without
  // marks. The order of the lines does not matter; the offsets, valid only for that run, are
  // ignored. Throws SpecError with the option and the line if the file cannot be read or is not
  // such a CSV.
  static Profile read_profile(Options const& given, std::string_view option) {
    Run const run = read(given, option);
    std::vector<std::size_t> frees(run.blocks.size());
    for (std::size_t i = 0; i < frees.size(); ++i) frees[i] = i;
    std::ranges::stable_sort(frees, {}, [&](std::size_t i) { return run.blocks[i].upper; });

    Profile profile;
    StepFinder finder;
    std::vector<Profile::Ticket> tickets(run.blocks.size());
    Size live = 0;
    std::uint64_t step = 0;
    auto next_free = frees.begin();
    auto const free_until = [&](std::uint64_t instant) {
      for (; next_free != frees.end() && run.blocks[*next_free].upper <= instant; ++next_free) {
        profile.freed(tickets[*next_free]);
        live -= run.blocks[*next_free].size;
      }
    };
    for (std::size_t i = 0; i < run.blocks.size(); ++i) {
      Line const& block = run.blocks[i];
      free_until(block.lower);
      if (run.has_steps ? block.step != step : finder.begins(block.size, live))
        profile.begin_step();
      step = block.step;
      tickets[i] = profile.request(block.size).ticket;
      live += block.size;
    }
    free_until(~std::uint64_t{0});
    profile.begin_run();
    return profile;
  }

 private:
  static constexpr std::string_view kHeader = "id,lower,upper,size,offset";
  static constexpr std::string_view kSteps = ",step";
  static constexpr Size kLargest = Size{1} << 62;

  struct Line {
    std::uint64_t lower, upper;
    Size size;
    std::uint64_t step;
  };

  struct Run {
    std::vector<Line> blocks;  // by `lower`
    bool has_steps;
  };

  // Parses the numbers after the id, which may itself contain commas; false if they are not
  // numbers.
  static bool parse(std::string_view line, bool has_steps, Line& block) {
    std::array<std::uint64_t, 5> numbers = {};
    for (std::size_t field = has_steps ? 5 : 4; field-- > 0;) {
      std::size_t const comma = line.rfind(',');
      if (comma == line.npos) return false;
      std::string_view const text = line.substr(comma + 1);
      auto const [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), numbers[field]);
      if (error != std::errc() || end != text.data() + text.size()) return false;
      line = line.substr(0, comma);
    }
    block = {numbers[0], numbers[1], numbers[2], numbers[4]};
    return block.lower < block.upper && block.size > 0 && block.size <= kLargest;
  }

  static Run read(Options const& given, std::string_view option) {
    std::ifstream file(given.text(option));
    if (!file) given.reject(option, "must be a readable file");
    std::string line;
    auto const next_line = [&] {
      if (!std::getline(file, line)) return false;
      if (line.ends_with('\r')) line.pop_back();
      return true;
    };
    next_line();
    Run run{{}, line == std::string(kHeader) + std::string(kSteps)};
    if (!run.has_steps && line != kHeader)
      given.reject(option, "is not a plan file: line 1 is not " + std::string(kHeader) + "[,step]");
    for (std::size_t number = 2; next_line(); ++number) {
      Line block;
      if (!parse(line, run.has_steps, block))
        given.reject(option, "is not a plan file: line " + std::to_string(number) +
                                 " must have an id, lower, a larger upper, a size and an offset" +
                                 (run.has_steps ? " and a step" : ""));
      run.blocks.push_back(block);
    }
    if (run.blocks.empty()) given.reject(option, "is a plan file without blocks");
    std::ranges::stable_sort(run.blocks, {}, &Line::lower);
    if (run.has_steps && !std::ranges::is_sorted(run.blocks, {}, &Line::step))
      given.reject(option, "is not a plan file: its steps are out of order");
    return run;
  }
};

}  // namespace allocbench
