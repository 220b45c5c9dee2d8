// The C++ wrapper: ownership, spans, exceptions.
#include "net.hpp"

#include <array>
#include <cstdio>
#include <vector>

int main(int, char **arguments) {
  std::vector<float> x(NET_INPUT_X_COUNT, 0.5f);
  std::array<float, NET_OUTPUT_RESULT_0_COUNT> y{};
  std::array<float, NET_OUTPUT_RESULT_1_COUNT> s{};
  net::model first(arguments[1], 2);
  net::model second(std::move(first));
  const net::results found = second.run({x});
  second.run({x}, {y, s});
  for (std::size_t i = 0; i < y.size(); i++)
    if (y[i] != found.result_0[i]) return 1;
  if (s[3] != found.result_1[3] || s[3] == 0) return 2;
  try {
    second.run({{x.data(), 3}}, {y, s});
    return 3;
  } catch (const std::invalid_argument &e) {
    std::puts(e.what());
  }
  try {
    net::model none("nowhere");
    return 4;
  } catch (const net::error &e) {
    std::puts(e.what());
    return e.status() == NET_NO_WEIGHTS ? 0 : 5;
  }
}
