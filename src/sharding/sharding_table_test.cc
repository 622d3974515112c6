#include "sharding/sharding_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

ParamSpec Rows(int64_t rows, int64_t columns, TpPlacement tp) {
  ParamSpec spec;
  spec.name = "weight";
  spec.shape = {rows, columns};
  spec.tp = tp;
  return spec;
}

TEST(ShardingTable, PiecesPartitionTheTensorAndPaddingBelongsToNobody) {
  for (const int tp : {1, 2, 3, 4, 8}) {
    for (const int64_t rows : {1, 2, 5, 61, 64}) {
      const int64_t padded = (rows + tp - 1) / tp * tp;
      int64_t next = 0;
      for (int rank = 0; rank < tp; ++rank) {
        const LocalParam local = ShardingTable({Rows(rows, 3, {0, tp, padded})}, tp, rank).params()[0];
        EXPECT_EQ(local.local_shape, (Shape{padded / tp, 3}));
        if (local.rectangle.size[0] > 0) EXPECT_EQ(local.rectangle.offset[0], next);
        next += local.rectangle.size[0];
        EXPECT_TRUE(local.counts);
        EXPECT_FALSE(local.partial_gradient);
      }
      EXPECT_EQ(next, rows);
    }
  }
}

// Two key/value heads over four ranks: pairs share a head, and their gradients are partial sums.
TEST(ShardingTable, FewerPiecesThanRanksAreReplicated) {
  const std::vector<ParamSpec> specs = {Rows(6, 2, {0, 2, 0})};
  const int64_t offsets[] = {0, 0, 3, 3};
  for (int rank = 0; rank < 4; ++rank) {
    const LocalParam local = ShardingTable(specs, 4, rank).params()[0];
    EXPECT_EQ(local.rectangle, (Rectangle{{offsets[rank], 0}, {3, 2}}));
    EXPECT_EQ(local.replicas, 2);
    EXPECT_EQ(local.counts, rank % 2 == 0);
    EXPECT_TRUE(local.partial_gradient);
  }
}

TEST(ShardingTable, WholeParametersCountOnce) {
  for (int rank = 0; rank < 3; ++rank) {
    const LocalParam local = ShardingTable({Rows(4, 1, {})}, 3, rank).params()[0];
    EXPECT_EQ(local.local_shape, (Shape{4, 1}));
    EXPECT_EQ(local.counts, rank == 0);
    EXPECT_FALSE(local.partial_gradient);  // each rank computes all of it
  }
}

TEST(ShardingTable, APieceThatDoesNotDivideIsRefusedByName) {
  EXPECT_THROW(ShardingTable({Rows(5, 2, {0, 2, 0})}, 2, 0), UserError);
  EXPECT_THROW(ShardingTable({Rows(6, 2, {0, 3, 0})}, 4, 0), UserError);
}

TEST(Rectangle, IntersectionMayBeEmpty) {
  EXPECT_EQ(Intersect({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Rectangle{{2, 3}, {2, 1}}));
  EXPECT_EQ(NumElements(Intersect({{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}).size), 0);
}

}  // namespace
}  // namespace trireme
