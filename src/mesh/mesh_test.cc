#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace trireme {
namespace {

using Groups = std::vector<std::vector<int>>;

ParallelOptions Degrees(int tp, int cp, int dp, int pp, std::vector<std::string> order = {"tp", "cp", "dp", "pp"}) {
  ParallelOptions options;
  options.tp = tp;
  options.cp = cp;
  options.dp = dp;
  options.pp = pp;
  options.order = std::move(order);
  return options;
}

// A published recipe for this layout lists {0,1} as a data-parallel group. But ranks 0 and 1 share a tensor-parallel
// group: they hold different pieces of one matrix, and adding their gradients up mixes them. Groups asked by axis
// cannot collide.
TEST(Mesh, SixteenRanksOfTp4Pp2Dp2) {
  const Mesh mesh(Degrees(4, 1, 2, 2, {"tp", "dp", "pp"}));
  EXPECT_EQ(mesh.world(), 16);
  EXPECT_EQ(mesh.Groups(Axis::kTp), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(mesh.Groups(Axis::kDp), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(mesh.Groups(Axis::kPp), (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
}

TEST(Mesh, EveryAxisPartitionsTheWorldInEveryOrder) {
  std::vector<std::string> order = {"cp", "dp", "pp", "tp"};
  do {
    for (const int tp : {1, 2, 3}) {
      for (const int cp : {1, 2}) {
        for (const int dp : {1, 2, 3}) {
          for (const int pp : {1, 2}) {
            const Mesh mesh(Degrees(tp, cp, dp, pp, order));
            for (const Axis axis : kAllAxes) {
              std::multiset<int> seen;
              for (const std::vector<int>& group : mesh.Groups(axis)) {
                EXPECT_EQ(static_cast<int>(group.size()), mesh.Size(axis));
                for (const int rank : group) {
                  EXPECT_EQ(mesh.Group(axis, rank), group);  // any two members agree
                  seen.insert(rank);
                }
              }
              EXPECT_EQ(static_cast<int>(seen.size()), mesh.world());
              EXPECT_EQ(static_cast<int>(std::set(seen.begin(), seen.end()).size()), mesh.world());
            }
            for (int rank = 0; rank < mesh.world(); ++rank) EXPECT_EQ(mesh.RankOf(mesh.At(rank)), rank);
            // Two different ranks meet in at most one of the dense groups.
            for (int a = 0; a < mesh.world(); ++a) {
              for (int b = a + 1; b < mesh.world(); ++b) {
                int meetings = 0;
                for (const Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp}) {
                  meetings += static_cast<int>(std::ranges::count(mesh.Group(axis, a), b));
                }
                EXPECT_LE(meetings, 1);
              }
            }
          }
        }
      }
    }
  } while (std::ranges::next_permutation(order).found);
}

// tp 8 x pp 4 x dp 2 with experts tp 4 inside and data parallel between: the stage's 16 ranks are 4 x 1 x 4.
TEST(Mesh, ExpertsUseTheSameRanksOnTheirOwnAxes) {
  ParallelOptions options = Degrees(8, 1, 2, 4);
  options.expert_tp = 4;
  const Mesh mesh(options);
  EXPECT_EQ(mesh.Size(Axis::kExpertDp), 4);
  EXPECT_EQ(mesh.Group(Axis::kExpertTp, 5), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(mesh.Group(Axis::kExpertDp, 5), (std::vector{1, 5, 9, 13}));
  options.expert_tp = 3;
  EXPECT_THROW(Mesh{options}, UserError);
}

TEST(Mesh, DenseGradientsReduceOverDpAndCp) {
  const Mesh mesh(Degrees(2, 2, 2, 1));
  EXPECT_EQ(mesh.Group({Axis::kDp, Axis::kCp}, 1), (std::vector{1, 3, 5, 7}));
}

TEST(Mesh, WrongOrdersAreRefusedByName) {
  EXPECT_THROW(Mesh(Degrees(2, 1, 1, 1, {"dp", "pp", "cp"})), UserError);
  EXPECT_THROW(Mesh(Degrees(2, 1, 1, 1, {"tp", "tp", "dp", "pp"})), UserError);
  EXPECT_THROW(Mesh(Degrees(2, 1, 1, 1, {"tp", "cp", "dp", "xp"})), UserError);
  EXPECT_THROW(Mesh(Degrees(0, 1, 1, 1)), UserError);
}

}  // namespace
}  // namespace trireme
