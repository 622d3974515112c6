#include <gtest/gtest.h>

#include "model_spec/model_spec.h"
#include "sharding/sharding_table.h"

namespace trireme {
namespace {

ModelOptions Tiny() {
  ModelOptions m;
  m.layers = 2;
  m.hidden = 8;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 2;
  m.ffn = 12;
  m.vocab = 10;
  m.seq = 3;
  return m;
}

// Embedding and head 2 x 80; a block: norms 16, q and o 2 x 64, k and v 2 x 32, MLP 3 x 96; final norm 8.
TEST(Llama, CountsItsParameters) {
  EXPECT_EQ(NumParameters(Tiny()), 160 + 2 * (16 + 128 + 64 + 288) + 8);
  ModelOptions tied = Tiny();
  tied.tied = true;
  EXPECT_EQ(NumParameters(tied), NumParameters(Tiny()) - 80);
}

// Matrices: 2 x (128 + 64 + 288) + 80 = 1040 weights, 2 FLOPs each; attention: 2 layers x 4 x 8 x 2 keys on average =
// 128.
TEST(Llama, CountsItsFlops) { EXPECT_EQ(TrainFlopsPerToken(Tiny()).value, 3.0 * (2 * 1040 + 128)); }

TEST(Llama, PadsTheVocabularyForEachRank) {
  ModelOptions m = Tiny();
  m.vocab = 50257;
  m.padded_vocab = 128;
  EXPECT_EQ(PaddedVocab(m, 1), 50304);
  EXPECT_EQ(PaddedVocab(m, 4), 50688);
}

TEST(Llama, EveryLayoutHoldsEachElementOnce) {
  for (const int tp : {1, 2, 4}) {
    int64_t elements = 0;
    for (int rank = 0; rank < tp; ++rank) {
      const ShardingTable table(ParamTable(Tiny(), tp), tp, rank);
      EXPECT_EQ(table.NumGlobalElements(), NumParameters(Tiny()));
      for (const LocalParam& param : table.params()) elements += param.counts ? NumElements(param.rectangle.size) : 0;
    }
    EXPECT_EQ(elements, NumParameters(Tiny())) << "tp " << tp;
  }
}

}  // namespace
}  // namespace trireme
