// Data-parallel training of a small classifier, on four threads of this process, or under a launcher:
//   ./ddp        torchrun --no-python --nproc-per-node 4 ./ddp        mpirun -np 4 ./ddp
#include <torch/torch.h>
#include <trireme/distributed_data_parallel.h>
#include <trireme/run.h>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    head = register_module("head", torch::nn::Linear(8 * 8 * 8, 2));
  }
  torch::Tensor forward(torch::Tensor x) { return head(torch::max_pool2d(torch::relu(conv(x)), 2).flatten(1)); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

// Is the upper or the lower half of a noisy picture brighter?
std::pair<torch::Tensor, torch::Tensor> Batch(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(1000 * step + rank);
  auto x = torch::randn({32, 1, 16, 16}, generator, torch::kFloat);
  auto y = (x.narrow(2, 0, 8).mean({1, 2, 3}) < x.narrow(2, 8, 8).mean({1, 2, 3})).to(torch::kLong);
  return {x, y};
}

int main() {
  return trireme::RunDistributed({.ranks = 4}, [](trireme::Communicator& world) {
    torch::set_num_threads(1);
    Net net;  // every rank starts from rank 0's parameters
    trireme::DistributedDataParallel ddp(net, world);
    torch::optim::AdamW optimizer(net->parameters(), 3e-3);
    for (int step = 1; step <= 200; ++step) {
      auto [x, y] = Batch(step, world.rank());
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(ddp.Forward(net, x), y);
      loss.backward();  // gradients are the mean over ranks when this returns
      optimizer.step();
      auto mean = loss.detach().clone();
      world.AllReduce(mean)->Wait();
      if (world.rank() == 0 && step % 50 == 0) {
        std::printf("step %3d  loss %.4f\n", step, mean.item<float>() / world.size());
      }
    }
  });
}
