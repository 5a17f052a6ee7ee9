// C++ of the host in a file of nvcc: what cudafe++ reads of libc++, and what clang compiles of that.
#include <algorithm>
#include <atomic>
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

struct Pair { short first, second; };

// One decimal digit for each operation, and what it must be
extern "C" __declspec(dllexport) long long atomics()
{
    std::atomic<int> number{5};
    number += 3;
    number.fetch_or(16);
    int expected = 24;
    const bool swapped = number.compare_exchange_strong(expected, 7);
    expected = 9;
    const bool refused = !number.compare_exchange_weak(expected, 1) && expected == 7;
    std::atomic<Pair> pair{Pair{1, 2}};
    const Pair before = pair.exchange(Pair{3, 4});
    std::atomic<long long> wide;
    wide.store(5000000000);
    wide--;
    std::atomic<char> narrow{'a'};
    narrow++;
    int values[] = {1, 2, 3};
    std::atomic<int *> pointer{values};
    pointer++;
    std::atomic_flag flag = ATOMIC_FLAG_INIT;
    const bool first = !flag.test_and_set(), second = flag.test_and_set();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return swapped + 10 * refused + 100 * before.second + 1000 * pair.load().second +
        10000 * (wide.load() == 4999999999) + 100000 * (narrow.load() == 'b') +
        1000000 * *pointer.load() + 10000000 * first + 100000000 * second;
}
