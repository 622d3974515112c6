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
constexpr int64_t kSizes[] = {0, 1, 1009};
constexpr int64_t kLarge = 16 * 1024 * 1024;  // bytes
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

TEST_P(CommConformance, SixteenMebibytes) {
  for (const int n : kRanks) {
    for (const at::ScalarType type : kTypes) {
      Run(n, [&](Communicator& c) {
        const int64_t piece = kLarge / static_cast<int64_t>(c10::elementSize(type)) / n, size = piece * n;
        at::Tensor t = at::full({size}, c.rank() + 1, type);
        c.AllReduce(t)->Wait();
        EXPECT_TRUE(at::equal(t, at::full({size}, n * (n + 1) / 2, type)));
        at::Tensor all = at::empty({n, piece}, type), mine = at::full({piece}, c.rank() + 1, type);
        c.AllGather(all, mine)->Wait();
        for (int r = 0; r < n; ++r) EXPECT_TRUE(at::equal(all[r], at::full({piece}, r + 1, type)));
        c.ReduceScatter(mine, all)->Wait();
        EXPECT_TRUE(at::equal(mine, at::full({piece}, n * (c.rank() + 1), type)));
        c.Broadcast(t.fill_(c.rank()), n - 1)->Wait();
        EXPECT_TRUE(at::equal(t, at::full({size}, n - 1, type)));
      });
    }
  }
}

// 0.1 (r + 1) has no exact sum in fp32: the order of additions shows in the last bits, and must be the same for all.
TEST_P(CommConformance, AllRanksGetTheSameBits) {
  for (const int n : kRanks) {
    Run(n, [&](Communicator& c) {
      for (const int64_t size : {int64_t{1009}, int64_t{300007}}) {
        at::Tensor t = at::full({size}, 0.1f * static_cast<float>(c.rank() + 1)), all = at::empty({n, size});
        c.AllReduce(t)->Wait();
        c.AllGather(all, t)->Wait();
        for (int r = 0; r < n; ++r) EXPECT_TRUE(at::equal(all[r], t)) << "rank " << r;
        EXPECT_NEAR(t[0].item<float>(), 0.05 * n * (n + 1), 1e-5);
      }
    });
  }
}

TEST_P(CommConformance, AllGatherInPlace) {
  Run(3, [](Communicator& c) {
    at::Tensor all = at::zeros({3, 5});
    const at::Tensor mine = all[c.rank()].fill_(c.rank() + 1.f);
    c.AllGather(all, mine)->Wait();
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(at::equal(all[r], at::full({5}, r + 1.f)));
  });
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

// Whatever two ranks disagree about is an error on both that shows both sides.
TEST_P(CommConformance, EveryKindOfMismatchShowsBothSides) {
  struct Case {
    std::function<void(Communicator&)> rank0, rank1;
    const char *text0, *text1;
  };
  const auto reduce = [](at::ScalarType type, ReduceOp op) {
    return [=](Communicator& c) { c.AllReduce(at::zeros({3}, type), op)->Wait(); };
  };
  const auto broadcast = [](int root) { return [=](Communicator& c) { c.Broadcast(at::zeros({3}), root)->Wait(); }; };
  const std::vector<Case> cases{
      {reduce(at::kFloat, ReduceOp::kSum), reduce(at::kDouble, ReduceOp::kSum), "Float", "Double"},
      {reduce(at::kFloat, ReduceOp::kSum), reduce(at::kFloat, ReduceOp::kMax), "sum", "max"},
      {broadcast(0), broadcast(1), "from rank 0", "from rank 1"},
      {reduce(at::kFloat, ReduceOp::kSum), broadcast(0), "all_reduce", "broadcast"},
      {reduce(at::kFloat, ReduceOp::kSum), [](Communicator& c) { c.Barrier()->Wait(); }, "all_reduce", "barrier"},
  };
  for (const Case& test : cases) {
    Run(2, [&](Communicator& c) {
      const std::string error = ErrorOf([&] { (c.rank() == 0 ? test.rank0 : test.rank1)(c); });
      EXPECT_NE(error.find(test.text0), std::string::npos) << error;
      EXPECT_NE(error.find(test.text1), std::string::npos) << error;
      EXPECT_NE(error.find("sequence number 0"), std::string::npos) << error;
    });
  }
}

TEST_P(CommConformance, AbortReleasesAllWithItsReason) {
  Run(3, [](Communicator& c) {
    if (c.rank() == 0) {
      SleepMs(30);
      c.Abort("because of the test");
    }
    const std::string error = ErrorOf([&] {
      c.Barrier()->Wait();
      c.Barrier()->Wait();
    });
    EXPECT_NE(error.find("because of the test"), std::string::npos) << error;
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
