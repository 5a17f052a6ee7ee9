// C++ of the host in a file of nvcc: what cudafe++ reads of libc++, and what clang compiles of that.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

__global__ void kernel(float *a)
{
    a[0] = std::sqrt(a[1]) + std::erf(a[2]) + std::fmax(a[0], 1.0f) + sqrt(a[3]);
}

static std::mutex guard;

// 1000 times the length of what was thrown, 10 times how many texts, and the least of the numbers
extern "C" __declspec(dllexport) int answer(int n)
{
    std::lock_guard<std::mutex> held(guard);
    std::vector<int> numbers;
    for (int i = 0; i < n; i++) numbers.push_back(n - i);
    std::sort(numbers.begin(), numbers.end());
    std::map<std::string, int> texts;
    for (int one : numbers) texts[std::to_string(one) + ", a text that is not kept in place"] = one;
    auto first = std::make_shared<int>(numbers[0]);
    auto second = first;
    try {
        throw std::runtime_error("x" + std::to_string(n));
    } catch (const std::exception &error) {
        return int(std::string(error.what()).size()) * 1000 + int(texts.size()) * 10 + *second;
    }
}

extern "C" __declspec(dllexport) double number(float x)
{
    return std::fmax(x, std::fabs(x)) + std::sqrt(x) + std::pow(x, 2.0f) + std::round(x) + sqrt(x);
}
