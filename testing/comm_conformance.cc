#include "testing/comm_conformance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <thread>

namespace trireme::testing {

std::string BackEndName(const ::testing::TestParamInfo<BackEnd>& info) { return info.param.name; }

namespace {

constexpr int kRanks[] = {1, 2, 3, 4, 7};
constexpr int64_t kSizes[] = {0, 1, 1009, 4 * 1024 * 1024};  // the last is 16 MiB of fp32
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kLong};

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& e) {
    return e.what();
  }
  return "no error";
}

TEST_P(CommConformance, FourRanksSumToTenTimesTheVector) {
  Run(4, [](Communicator& c) {  // 1 + 2 + 3 + 4 = 10
    at::Tensor t = at::tensor({1.f, 2.f, 3.f, 4.f}) * (c.rank() + 1);
    c.AllReduce(t)->Wait();
    EXPECT_TRUE(at::equal(t, at::tensor({10.f, 20.f, 30.f, 40.f})));
  });
}

TEST_P(CommConformance, AllCollectivesAtAllSizes) {
  for (const int n : kRanks) {
    for (const int64_t size : kSizes) {
      for (const at::ScalarType type : kTypes) {
        if (size > 1009 && (n > 4 || type != at::kFloat)) continue;  // 16 MiB once for each small world
        Run(n, [&](Communicator& c) {
          const int64_t sum = n * (n + 1) / 2;  // of r + 1
          at::Tensor t = at::full({size}, c.rank() + 1, type);
          c.AllReduce(t)->Wait();
          EXPECT_TRUE(at::equal(t, at::full({size}, sum, type)));
          t = at::full({size}, c.rank() + 1, type);
          c.AllReduce(t, ReduceOp::kMax)->Wait();
          EXPECT_TRUE(at::equal(t, at::full({size}, n, type)));

          at::Tensor all = at::zeros({n, size}, type);
          c.AllGather(all, at::full({size}, c.rank() + 1, type))->Wait();
          for (int r = 0; r < n; ++r) EXPECT_TRUE(at::equal(all[r], at::full({size}, r + 1, type)));
          at::Tensor piece = at::empty({size}, type);  // every rank holds r + 1 in piece r: the sum is n (r + 1)
          c.ReduceScatter(piece, all)->Wait();
          EXPECT_TRUE(at::equal(piece, at::full({size}, n * (c.rank() + 1), type)));

          t = at::full({size}, c.rank(), type);
          c.Broadcast(t, n - 1)->Wait();
          EXPECT_TRUE(at::equal(t, at::full({size}, n - 1, type)));
          c.Barrier()->Wait();
        });
      }
    }
  }
}

TEST_P(CommConformance, AllToAllSendsRowsWhereTheyBelong) {
  Run(3, [](Communicator& c) {  // rank r sends q rows of value 10 r + q to rank q
    const int r = c.rank();
    at::Tensor in = at::empty({3, 2}), out = at::zeros({3 * r, 2});
    in[0].fill_(10 * r + 1), in[1].fill_(10 * r + 2), in[2].fill_(10 * r + 2);
    c.AllToAll(out, in, {r, r, r}, {0, 1, 2})->Wait();
    for (int row = 0; row < 3 * r; ++row) EXPECT_TRUE(at::equal(out[row], at::full({2}, 10.f * (row / r) + r)));
  });
}

TEST_P(CommConformance, PeersMayBothSendFirst) {
  Run(2, [](Communicator& c) {
    at::Tensor first = at::full({5}, 0.f + c.rank()), second = at::full({5}, 10.f + c.rank()), a = at::empty({5}),
               b = a.clone();
    const WorkPtr s1 = c.Send(first, 1 - c.rank()), s2 = c.Send(second, 1 - c.rank());
    const WorkPtr r1 = c.Recv(a, 1 - c.rank()), r2 = c.Recv(b, 1 - c.rank());
    r2->Wait(), r1->Wait(), s1->Wait(), s2->Wait();
    EXPECT_TRUE(at::equal(a, at::full({5}, 1.f - c.rank())));
    EXPECT_TRUE(at::equal(b, at::full({5}, 11.f - c.rank())));
  });
}

TEST_P(CommConformance, WorksMayBeWaitedInAnyOrder) {
  Run(3, [](Communicator& c) {
    at::Tensor a = at::full({1009}, 1.f), b = at::full({1009}, 2.f);
    const WorkPtr first = c.AllReduce(a), second = c.AllReduce(b);
    if (c.rank() == 1) first->Wait();
    second->Wait(), first->Wait(), first->Wait();
    EXPECT_EQ(a[7].item<float>(), 3.f);
    EXPECT_EQ(b[7].item<float>(), 6.f);
  });
}

TEST_P(CommConformance, GroupsDoNotDisturbEachOther) {
  Run(4, [](Communicator& c) {  // 0 + 3 = 1 + 2 = 3
    const auto group = c.Split({{0, 3}, {1, 2}}, "pair");
    EXPECT_EQ(group->size(), 2);
    EXPECT_EQ(group->ranks()[size_t(group->rank())], c.rank());
    SleepMs(20 * c.rank());
    at::Tensor t = at::full({1}, c.rank());
    group->AllReduce(t)->Wait();
    EXPECT_EQ(t.item<float>(), 3.f);
  });
}

TEST_P(CommConformance, MismatchIsAnErrorOnEveryMember) {
  Run(2, [](Communicator& c) {
    at::Tensor t = at::zeros({3 + c.rank()});
    const std::string error = ErrorOf([&] { c.AllReduce(t)->Wait(); });
    EXPECT_NE(error.find("[3]"), std::string::npos) << error;
    EXPECT_NE(error.find("[4]"), std::string::npos) << error;
    EXPECT_NE(error.find("'world', sequence number 0"), std::string::npos) << error;
  });
}

TEST_P(CommConformance, DifferentSplitListsAreShown) {
  Run(2, [](Communicator& c) {
    using Lists = std::vector<std::vector<int>>;
    const Lists lists = c.rank() == 0 ? Lists{{0, 1}} : Lists{{0}, {1}};
    const std::string error = ErrorOf([&] { c.Split(lists, "x"); });
    EXPECT_NE(error.find("{0,1}"), std::string::npos) << error;
    EXPECT_NE(error.find("{0} {1}"), std::string::npos) << error;
  });
}

TEST_P(CommConformance, MissingPeerIsNamedAfterTheTimeOut) {
  const std::string error = ErrorOf([&] {
    Run(
        3,
        [](Communicator& c) {
          if (c.rank() != 2) c.Barrier()->Wait();
        },
        0.2);
  });
  EXPECT_NE(error.find("missing: rank 2"), std::string::npos) << error;
  EXPECT_NE(error.find("0.2 s (train.timeout_s)"), std::string::npos) << error;
}

TEST_P(CommConformance, LatePeerGetsTheErrorToo) {
  Run(
      2,
      [](Communicator& c) {
        if (c.rank() == 1) SleepMs(400);
        EXPECT_NE(ErrorOf([&] { c.Barrier()->Wait(); }).find("missing: rank 1"), std::string::npos);
      },
      0.1);
}

TEST_P(CommConformance, ThrowingRankReleasesTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  try {
    Run(4, [](Communicator& c) {
      const auto group = c.Split({{0, 1}, {2, 3}}, "pair");
      at::Tensor t = at::zeros({4});
      const WorkPtr pending = group->AllReduce(t);
      if (c.rank() == 1) throw std::runtime_error("the cause");
      pending->Wait();
      c.Barrier()->Wait();
    });
    ADD_FAILURE() << "expected an error";
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "the cause");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));  // the time-out is 20 s
}

}  // namespace
}  // namespace trireme::testing
